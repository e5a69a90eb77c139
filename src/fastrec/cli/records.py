"""``fastrec head``, ``sample`` and ``count``: print and count records."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from typer import echo

import fastrec as fr
from fastrec.cli.arguments import (
    AsJson,
    Columns,
    NumRecords,
    Paths,
    Seed,
    Where,
    names_in,
)
from fastrec.cli.files import files_of, indexed
from fastrec.cli.preview import aligned, preview, text_of
from fastrec.cli.sql import matching_rows
from fastrec.cli.terminal import counted, print_json, printable
from fastrec.display import image_format
from fastrec.hints import no_column
from fastrec.storage.pipes import PipePath

_MAX_STEPS = 3

_Numbers = npt.NDArray[np.int64]


class PlacedRecord(NamedTuple):
    """A record's bytes, with the path of its file and its number in the file."""

    path: str
    number: int
    data: bytes


def head(
    paths: Paths,
    *,
    n: NumRecords = 5,
    record: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=0,
            help="Print only this record, counted from 0 over all files.",
        ),
    ] = None,
    columns: Columns = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Print the first records.

    Only the printed records are read, so the output appears at once. With --record,
    files are indexed, but pipes are read sequentially. With --where, all files are
    indexed, and the columns of the condition are decoded first.
    """
    if record is not None and where is not None:
        raise typer.BadParameter("--record and --where cannot be combined")
    files = files_of(paths, joins=False, allows_pipes=where is None)
    records: Iterable[PlacedRecord]
    if where is not None:
        records = _records_at(files, _matching(files, where, n))
    elif record is None or any(isinstance(path, PipePath) for path in files):
        begin, end = (0, n) if record is None else (record, record + 1)
        records = itertools.islice(first_records(files), begin, end)
    else:
        counts, _ = indexed(files)
        if record >= sum(counts[path] for path in files):
            raise typer.BadParameter(
                f"must be less than the number of records, got {record}",
                param_hint="--record",
            )
        records = _records_at(files, np.array([record]))
    _print_records(n, records, files, columns, where, as_json=as_json)


def sample(
    paths: Paths,
    *,
    n: NumRecords = 5,
    seed: Seed = 0,
    columns: Columns = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Print random records, in file order.

    All records are equally likely. The same seed selects the same records. The files
    are indexed first; compressed files are read once.
    """
    files = files_of(paths, joins=False)
    records = sampled_records(files, n, seed, where)
    _print_records(n, records, files, columns, where, as_json=as_json)


def count(paths: Paths, *, where: Where = None, as_json: AsJson = False) -> None:
    """Print the number of records in all files.

    The command uses the indexes of the files, and builds missing indexes. With --where,
    only the columns of the condition are decoded.
    """
    files = files_of(paths, joins=False)
    counts, _ = indexed(files)
    n_each = [counts[path] for path in files]
    if where is not None:
        numbers = _matching(files, where)
        n_each = np.diff(np.searchsorted(numbers, np.cumsum([0, *n_each]))).tolist()
    if not as_json:
        echo(sum(n_each))
        return
    pairs = zip(files, n_each, strict=True)
    listed = [{"path": path, "n_records": n} for path, n in pairs]
    print_json({"n_records": sum(n_each), "files": listed})


# Reading.


def first_records(files: Sequence[str]) -> Iterator[PlacedRecord]:
    """Yield the records of files in order, without indexes; open one file at a time."""
    for path in files:
        for number, data in enumerate(fr.read_records(path, num_threads=0)):
            yield PlacedRecord(path, number, data)


def sampled_records(
    files: Sequence[str], n: int, seed: int, where: str | None = None
) -> list[PlacedRecord]:
    """Return up to `n` random records that match `where`, in file order."""
    numbers: _Numbers
    if where is None:
        counts, _ = indexed(files)
        numbers = np.arange(sum(counts[path] for path in files))
    else:
        numbers = _matching(files, where)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(numbers, min(n, len(numbers)), replace=False)
    return list(_records_at(files, np.sort(chosen)))


def _matching(files: Sequence[str], where: str, limit: int | None = None) -> _Numbers:
    indexed(files)  # shows a progress bar
    return matching_rows(fr.open(files), where, limit)


def _records_at(files: Sequence[str], numbers: _Numbers) -> Iterator[PlacedRecord]:
    """Yield the records with the ascending `numbers`, counted from 0 over all files."""
    counts, _ = indexed(files)
    ends = np.cumsum([counts[path] for path in files])
    ds = fr.open(files)
    records: Iterator[bytes]
    if ds.is_streamed:
        wanted = np.zeros(max(numbers, default=-1) + 1, np.bool_)
        wanted[numbers] = True
        records = itertools.compress(ds.records, wanted.tolist())
    else:
        records = iter(ds.select(numbers).records)
    for number, data in zip(numbers.tolist(), records, strict=True):
        file = int(np.searchsorted(ends, number, "right"))
        path = files[file]
        yield PlacedRecord(path, number - int(ends[file]) + counts[path], data)


class _Message(NamedTuple):
    """Features of an Example or SequenceExample, by name; an Example has no `lists`."""

    context: dict[str | bytes, Any]
    lists: dict[str | bytes, list[Any]]

    def chosen(self, names: Sequence[str]) -> _Message:
        """Return only the features and feature lists in `names`, in that order."""
        return _Message(
            {name: self.context[name] for name in names if name in self.context},
            {name: self.lists[name] for name in names if name in self.lists},
        )


def message_of(data: bytes) -> _Message | str:
    """Decode a record, or return the name of its format if it is not an Example."""
    with contextlib.suppress(fr.DecodeError):
        return _Message(*fr.decode_sequence_example(data))
    try:  # field 2 may be an unknown field, not feature lists
        return _Message(fr.decode_example(data), {})
    except fr.DecodeError as error:
        if looks := error.reason.partition("looks like ")[2]:
            return looks
    is_text = text_of(data) is not None
    return image_format(data) or ("UTF-8 text" if is_text else "unknown")


# Printing.


def _print_records(
    n_wanted: int,
    records: Iterable[PlacedRecord],
    files: Sequence[str],
    names: str | None,
    where: str | None,
    *,
    as_json: bool,
) -> None:
    """Print the features `names` of each record, or a note if there are no records.

    Raises an Error if a requested column is missing from all records.
    """
    columns = names_in(names)
    missing, known = set(columns or ()), set[str]()
    is_first = True
    for record in records:
        message = message_of(record.data)
        if not isinstance(message, str):
            found = {str(name) for part in message for name in part}
            missing -= found
            known |= found
            message = message if columns is None else message.chosen(columns)
        if as_json:
            print_json(_fields(record, message))
        else:
            lines = _lines(record, message, columns or ())
            echo(("" if is_first else "\n") + "\n".join(lines))
        is_first = False
    if known and missing:
        raise fr.Error(no_column(min(missing), sorted(known), "any of these records"))
    if n_wanted and is_first and not as_json:
        such = "" if where is None else "such "
        echo(f"no {such}records in {counted(len(files), 'file')}")


def _fields(record: PlacedRecord, message: _Message | str) -> dict[str, object]:
    """Return a record as a dict for JSON, with each feature as a list of values."""
    fields: dict[str, object] = {"path": record.path, "record": record.number}
    if isinstance(message, str):
        return {**fields, "bytes": record.data}
    fields["features"] = {
        name: [] if values is None else values
        for name, values in message.context.items()
    }
    return fields | ({"feature_lists": message.lists} if message.lists else {})


def _lines(
    record: PlacedRecord, message: _Message | str, columns: Sequence[str]
) -> Iterator[str]:
    size = counted(len(record.data), "byte")
    yield f"record {record.number:,} of {printable(record.path)}, {size}"
    if isinstance(message, str):
        looks = "" if message == "unknown" else f"; it looks like {message}"
        yield f"  not a tf.train.Example{looks}"
        yield f"  {preview(record.data)}"
        return
    texts: dict[str | bytes, str] = dict.fromkeys(columns, "absent")
    texts |= {name: _values_text(values) for name, values in message.context.items()}
    texts |= {name: _steps_text(steps) for name, steps in message.lists.items()}
    yield from (f"  {line}" for line in aligned(texts) or ["no features"])


def _values_text(values: Any) -> str:
    if values is None:
        return "no values"
    return preview(values[0] if len(values) == 1 else values)


def _steps_text(steps: Sequence[Any]) -> str:
    shown = list(map(_values_text, steps[:_MAX_STEPS]))
    if len(steps) > _MAX_STEPS:
        shown.append("...")
    return ": ".join(filter(None, [counted(len(steps), "step"), ", ".join(shown)]))
