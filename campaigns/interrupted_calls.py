"""Single calls that signals interrupt: indexes, rows, filters, copies, commands.

An interrupted call is repeated, and must then return what a call without signals does.
A file under its final name must be complete.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from campaigns.interrupted_readers import NUMBERS, Data, is_even, plain
from campaigns.interrupted_writers import records_of
from campaigns.signals import Interrupted, Signals
from columns import Untyped

_SECONDS_TO_UNLOCK = 60

# A call gets a folder for what it keeps, and the number of threads where it has a
# choice; it returns values that compare.
Call = Callable[[Data, Path, int], Untyped]


def _count(kind: str) -> Call:
    return lambda data, folder, _: len(data.open(kind, index_dir=folder))


def _build_index(data: Data, folder: Path, _: int) -> Untyped:
    return fr.build_index(data.files("plain"), index_dir=folder)


def _shuffled(data: Data, folder: Path, n_threads: int) -> Untyped:
    ds = data.open(features=NUMBERS, index_dir=folder)
    return [
        batch["n"].tolist()
        for batch in ds.loader(9, shuffle=True, num_threads=n_threads)
    ]


def _copies(kind: str) -> Call:
    def read(data: Data, folder: Path, n_threads: int) -> Untyped:
        ds = data.open(kind, features=NUMBERS, cache_dir=folder, index_dir=folder)
        numbers = [n for b in ds.loader(9, num_threads=n_threads) for n in b["n"]]
        copies = [path for path in folder.iterdir() if path.suffix == ".tfrecord"]
        return numbers, sorted(len(records_of(path)) for path in copies)

    return read


def _row(data: Data, _folder: Path, _: int) -> Untyped:
    ds = data.open()
    return [plain(dict(ds[i])) for i in (0, 17, -1)]


def _rows(data: Data, _folder: Path, _: int) -> Untyped:
    ds = data.open()
    return plain(ds[[3, 40, 3, 20]]), plain(ds[5:25])


def _head(data: Data, _folder: Path, _: int) -> Untyped:
    return [plain(dict(row)) for row in data.open("gzip").head(7)]


def _records(data: Data, _folder: Path, _: int) -> Untyped:
    ds = data.open()
    return list(ds.records), ds.records[11]


def _read_records(data: Data, _folder: Path, n_threads: int) -> Untyped:
    return list(fr.read_records(data.files("gzip"), num_threads=n_threads))


def _filter(data: Data, _folder: Path, _: int) -> Untyped:
    ds = data.open(features=NUMBERS).filter(is_even)
    return [int(n) for batch in ds.loader(9, num_threads=0) for n in batch["n"]]


def _schema(kind: str) -> Call:
    def infer(data: Data, folder: Path, _: int) -> Untyped:
        ds = fr.open(data.files(kind), index_dir=folder)
        return str(ds.infer_schema()), sorted(ds.column_names)

    return infer


def _peek(data: Data, _folder: Path, n_threads: int) -> Untyped:
    loader = data.open().loader(5, shuffle=True, seed=3, num_threads=n_threads)
    return plain(loader.batch(4)), plain(loader.peek())


def _parse(data: Data, _folder: Path, _: int) -> Untyped:
    records = list(data.open(features=NUMBERS).records[:8])
    return plain(fr.parse_example(records, NUMBERS))


def _encode(_data: Data, _folder: Path, _threads: int) -> Untyped:
    return [fr.encode_example({"n": [i], "name": b"x" * i}) for i in range(20)]


def _written(files: list[str]) -> Untyped:
    return [(Path(path).name, records_of(Path(path))) for path in sorted(files)]


def _write(_: Data, folder: Path, n_threads: int) -> Untyped:
    rows = [{"n": i, "data": b"%d" % i * i} for i in range(60)]
    out = folder / "out-{shard:02d}"
    return _written(
        fr.write(
            out, rows, max_shard_records=25, num_threads=n_threads, overwrite=True
        ),
    )


def _convert(_: Data, folder: Path, _threads: int) -> Untyped:
    import pyarrow as pa

    table = pa.table({"n": np.arange(300)})
    return _written(fr.write(folder / "out.tfrecord", table, overwrite=True))


def _table(data: Data, folder: Path, _: int) -> Untyped:
    import pyarrow as pa

    from fastrec import convert

    path = folder / "out.arrow"
    convert.write_table(data.open(features=NUMBERS), path, batch_size=9, overwrite=True)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all().to_pydict()


def _arrow(data: Data, _folder: Path, _: int) -> Untyped:
    import pyarrow as pa

    ds = data.open().select_columns(["n", "name", "ids", "stack"])
    try:
        return pa.table(fr.arrow.RecordBatchReader(ds, batch_size=9)).to_pydict()
    except (pa.ArrowException, OSError):
        time.sleep(0)  # the signal's own exception is raised in addition
        raise


def _verify(kind: str) -> Call:
    def verify(data: Data, _folder: Path, n_threads: int) -> Untyped:
        from fastrec.rewrite.check import check_files

        # No text: a signal in the `repr` of a dataclass shortens those that follow.
        checks: list[Any] = list(check_files(data.files(kind), max(1, n_threads)))
        for check in checks:  # spans hold exceptions, which are never equal
            check.damaged = [each.region for each in check.damaged]
        return checks

    return verify


def _repair(data: Data, folder: Path, n_threads: int) -> Untyped:
    from fastrec.rewrite.check import check_files
    from fastrec.rewrite.repair import copy_intact

    targets = []
    for i, check in enumerate(check_files(data.files("damaged"), max(1, n_threads))):
        target = folder / f"repaired-{i}"
        copy_intact(check, target, max(1, n_threads), lambda _: None)
        targets.append(str(target))
    return _written(targets)


def _torch_rows(data: Data, _folder: Path, _: int) -> Untyped:
    from torch.utils.data import DataLoader

    rows = fr.torch.Dataset(data.open())
    batches = DataLoader(rows, batch_size=9, collate_fn=fr.torch.collate)
    return (
        [plain(rows[i]) for i in (0, 17, -1)],
        [plain(row) for row in rows.__getitems__([3, 40, 3])],
        [plain(batch) for batch in batches],
    )


def _grain_rows(data: Data, _folder: Path, _: int) -> Untyped:
    source = fr.grain.DataSource(data.open())
    rows = source.__getitems__([3, 40, 3])
    return len(source), repr(source), plain([source[0], source[-1], *rows])


def _grain_batches(data: Data, _folder: Path, _: int) -> Untyped:
    """Read by number only: Grain 0.2 has iterators that a signal breaks.

    If their constructor is interrupted, their `__del__` raises an AttributeError.
    """
    import grain

    source = fr.grain.DataSource(data.open(features=NUMBERS))
    batches = grain.MapDataset.source(source).batch(9)
    return plain([batches[i] for i in range(len(batches))])


def _polars_scan(data: Data, _folder: Path, _: int) -> Untyped:
    import polars as pl

    names = ["n", "name", "ids", "stack"]
    try:
        frame = fr.polars.scan(data.open().select_columns(names), text=["name"])
    except TypeError as error:
        # polars 2.1 replaces an exception that is raised while it converts a schema.
        if "is not a Polars data type" in str(error):
            raise Interrupted from error
        raise
    return [
        query.collect().to_dict(as_series=False)
        for query in (
            frame,
            frame.head(20).select("ids"),
            frame.filter(pl.col("n") % 3 == 0).select("name", "stack"),
        )
    ]


# Those of an adapter begin with its name.
CALLS: dict[str, Call] = {
    "index": _count("plain"),
    "index_of_gzip": _count("gzip"),
    "index_of_remote": _count("remote_plain"),
    "build_index": _build_index,
    "index_and_shuffle": _shuffled,
    "copies": _copies("gzip"),
    "copies_of_remote": _copies("remote_plain"),
    "row": _row,
    "rows": _rows,
    "head": _head,
    "records": _records,
    "read_records": _read_records,
    "filter": _filter,
    "infer_schema": _schema("plain"),
    "infer_schema_of_gzip": _schema("gzip"),
    "batch_and_peek": _peek,
    "parse": _parse,
    "encode": _encode,
    "write": _write,
    "torch_rows": _torch_rows,
    "grain_rows": _grain_rows,
    "grain_batches": _grain_batches,
    "polars_scan": _polars_scan,
}
if importlib.util.find_spec("pyarrow"):
    CALLS |= {"convert": _convert, "to_table": _table, "to_arrow": _arrow}
if importlib.util.find_spec("typer"):
    CALLS |= {
        "verify": _verify("damaged"),
        "verify_gzip": _verify("gzip"),
        "repair": _repair,
    }

_expected: dict[str, Untyped] = {}


def prepare_call(name: str, folder: Path, data: Data) -> None:
    """Make a call without signals, which also starts the threads of libraries."""
    if name not in _expected:
        first = folder / "first"
        first.mkdir()
        _expected[name] = CALLS[name](data, first, 1)


def run_call(
    signals: Signals, name: str, n_threads: int, folder: Path, data: Data
) -> str:
    """Make a call, again if a signal interrupts it, and return how it ended."""
    call = CALLS[name]
    found: list[Untyped] = []
    kept = folder / "kept"
    kept.mkdir()
    ended = "complete"

    def attempt() -> None:
        until = time.monotonic() + _SECONDS_TO_UNLOCK
        while not found:
            try:
                found.append(call(data, kept, n_threads))
            except BlockingIOError:
                # A thread still ends the interrupted writer, or its traceback is
                # part of a cycle.
                if time.monotonic() > until:
                    raise
                gc.collect()
                time.sleep(0.001)

    while signals.call(name, attempt):
        ended = "repeated"
        if found or signals.draw.random() < 0.3:
            break
        for path in kept.iterdir():
            if path.name.startswith(("out", "repaired")):
                complete = dict(_expected[name]) if name != "to_table" else {}
                if path.name in complete:
                    assert records_of(path) == complete[path.name], path
    attempt()
    assert found[0] == _expected[name], (name, n_threads)
    return ended
