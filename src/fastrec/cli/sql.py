"""DuckDB table of a dataset's records, and selection of records by an SQL condition."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import typer

import fastrec as fr
from fastrec.cli.terminal import progress_bar
from fastrec.hints import no_column
from fastrec.options import extra

_FETCHED = 1024  # rows per fetch


class Table:
    """DuckDB table named ``records``, with the records of a dataset.

    A feature with at most one value per sampled record is a column of values and nulls.
    Other features are columns of lists. UTF-8 text is VARCHAR; other bytes are BLOB.

    Parameters
    ----------
    ds : Dataset
    argument : str
        Name of the command-line argument that contains the SQL, for error messages.

    Attributes
    ----------
    columns : dict of str to (str, str)
        SQL name and type of each column, by its name in the schema. If names differ
        only in case, DuckDB appends numbers.
    head : list of (str, str)
        Name and type of each column in the result of the last statement.
    """

    def __init__(self, ds: fr.Dataset, argument: str = "SQL") -> None:
        with extra("cli", "SQL", "duckdb"):
            import duckdb
        self._duckdb: Any = duckdb
        self._argument = argument
        self._ds = ds
        names = [name for name in ds.schema if isinstance(name, str)]
        # DuckDB reads the first column for count(*).
        self._names = sorted(names, key=self._is_bytes)
        options: Any = ds.schema.arrow_options
        self._options = {option: set(options[option]) for option in options}
        self.columns: dict[str, tuple[str, str]] = dict.fromkeys(names, ("", ""))
        self.head: list[tuple[str, str]] = []
        self._describe()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Any]:
        """Execute one SQL statement, and yield the rows of its result.

        Only columns that the statement uses are decoded. If a record does not fit the
        inferred schema, the statement restarts with a schema that fits. If rows were
        already yielded, the error is raised instead.
        """
        if not self._names:
            raise fr.Error("cannot query the records: they have no features")
        has_rows, reason = False, ""
        while True:
            names = self._used(sql, parameters, reason)
            with progress_bar("reading") as bar:
                reader = self._reader(names, lambda n: bar(n, len(self._ds)))
                try:
                    with self._connection(reader, names) as connection:
                        found = _call(connection.execute, sql, parameters)
                        self.head = [
                            (name, str(kind)) for name, kind, *_ in found.description
                        ]
                        while rows := _call(connection.fetchmany, _FETCHED):
                            has_rows = True
                            yield from rows
                        return
                except self._duckdb.Error as error:
                    if reader.error is None:
                        raise self._usage_error(error, reason) from None
                    if has_rows or not self._loosen(reader.error):
                        raise reader.error from None
                    reason = str(reader.error)

    def _is_bytes(self, name: str) -> bool:
        return str(getattr(self._ds.schema[name], "dtype", "bytes")) == "bytes"

    def _describe(self) -> None:
        if self._names:
            with self._connection(self._reader(self._names)) as connection:
                described = _call(connection.execute, "DESCRIBE decoded").fetchall()
            for name, (found, kind, *_) in zip(self._names, described, strict=True):
                self.columns[name] = (found, kind)

    def _reader(self, names: Sequence[str], progress: Any = None) -> Any:
        options: Any = {k: v.intersection(names) for k, v in self._options.items()}
        ds = self._ds.select_columns(names)
        return fr.arrow.RecordBatchReader(ds, progress=progress, **options)

    @contextlib.contextmanager
    def _connection(self, reader: Any, names: Collection[str] = ()) -> Iterator[Any]:
        """Yield a DuckDB connection; columns of ``records`` not in `names` are NULL."""
        with self._duckdb.connect() as connection:
            connection.register("decoded", reader)
            if names:
                listed = ", ".join(
                    quoted(found)
                    if name in names
                    else f"NULL::{kind} AS {quoted(found)}"
                    for name, (found, kind) in self.columns.items()
                )
                view = f"CREATE VIEW records AS SELECT {listed} FROM decoded"
                _call(connection.execute, view)
            yield connection

    def _used(self, sql: str, parameters: Sequence[object], reason: str) -> list[str]:
        """Return the names of the columns that a statement reads, at least one name.

        Error messages end with `reason`: why column types have changed, or "".
        """
        with self._connection(self._reader(self._names), self._names) as connection:
            try:
                if len(connection.extract_statements(sql)) != 1:
                    raise typer.BadParameter(
                        f"must be one statement, got {sql!r}", param_hint=self._argument
                    )
                explain = f"EXPLAIN (FORMAT JSON) {sql}"
                plan = _call(connection.execute, explain, parameters).fetchall()[0][1]
            except self._duckdb.Error as error:
                raise self._usage_error(error, reason) from None
        scanned = set(_scanned(json.loads(plan)))
        found = {name for name, (of, _) in self.columns.items() if of in scanned}
        used = {name.lower() for name in found or self._names[:1]}
        return [name for name in self._names if name.lower() in used]

    def _loosen(self, error: Exception) -> bool:
        """Loosen the schema to prevent `error`; return False if this is impossible."""
        if not isinstance(error, fr.SchemaError):
            return False
        loose = loosened(self._ds)
        if loose.schema != self._ds.schema:
            self._ds = loose
        else:
            for option, names in self._options.items():
                if f" {option}=" in error.reason and error.feature in names:
                    names.remove(error.feature)
                    break
            else:
                return False
        self._describe()
        return True

    def _usage_error(self, error: Exception, reason: str) -> typer.BadParameter:
        """Convert a DuckDB error to one line, and add a hint for an unknown column."""
        text = str(error).partition("\n\nLINE ")[0].partition(": ")[2]
        if unknown := re.search('(?:Referenced column|column named) "(.+?)"', text):
            known = [of for of, _ in self.columns.values()]
            text = no_column(unknown[1], known, "the table records")
        return typer.BadParameter(
            " ".join(f"{text} {reason}".split()), param_hint=self._argument
        )


def _call(method: Any, *arguments: object) -> Any:
    """Call a DuckDB connection method in a thread, so that Ctrl-C can interrupt it."""
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(method, *arguments)
        try:
            return task.result()
        except KeyboardInterrupt:
            method.__self__.interrupt()
            raise


def loosened(ds: fr.Dataset) -> fr.Dataset:
    """Return a copy of `ds` whose features accept any number of values per record."""
    sections: dict[str, Any] = {
        section: {
            name: fr.VarLen(spec.dtype, key=spec.key)
            if isinstance(spec, fr.FixedLen)
            else spec
            for name, spec in specs.items()
        }
        for section, specs in ds.schema.sections.items()
    }
    return ds.with_features(**sections)


def _scanned(plan: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the name of each column that a query plan reads from a table."""
    for node in plan:
        yield from _scanned(node["children"])
        names = node["extra_info"].get("Projections", [])
        if not node["children"]:
            yield from [names] if isinstance(names, str) else names


def quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def matching_rows(
    ds: fr.Dataset, where: str, limit: int | None = None
) -> npt.NDArray[np.int64]:
    """Return the numbers of records, at most `limit`, for which `where` is true.

    Only the columns that the SQL condition uses are decoded.
    """
    sql = (
        'SELECT "row number" FROM '
        '(SELECT row_number() OVER () - 1 AS "row number", * FROM records) AS records\n'
        f"WHERE ({where}\n) {'' if limit is None else f'LIMIT {limit}'}"
    )
    rows = Table(ds, "--where").rows(sql)
    return np.fromiter((number for (number,) in rows), np.int64)
