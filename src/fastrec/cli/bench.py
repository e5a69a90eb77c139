"""``fastrec bench``: measure the time of each loading stage, and report the slowest.

The stages are reading or inflating, checksums, and decoding. Each measurement runs one
stage and all earlier stages on the same records. The difference from the previous
measurement is the cost of the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np
import typer
from typer import echo, secho

import fastrec as fr
from fastrec.cli.arguments import AsJson, BatchSize, Columns, Paths, names_in
from fastrec.cli.files import files_of
from fastrec.cli.terminal import (
    counted,
    print_json,
    print_table,
    printable,
    progress_bar,
    rate,
    size,
)
from fastrec.options import default_num_threads
from fastrec.storage.compression import content_of, inflated

_SAMPLE_BYTES = 256 << 20  # larger than CPU caches, small enough to read repeatedly
_COPIED_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
_N_ROUNDS = 6

_ADVICE = {
    "read": "memory bandwidth limits reads from the page cache: smaller records help",
    "inflate": "expand the files once with cache_dir=, or install the extra gzip",
    "checksums": "checksum time is proportional to record size: smaller records help",
    "decode": "decode fewer columns (try --columns), and store arrays as bytes (fr.Raw)",
}
_MEMCPY = "memcpy of the same bytes"

_Stage = Callable[[], None]  # one pass over the sample
_Times = tuple[float, float]  # wall seconds, and CPU seconds of all threads, of a pass


def bench(
    paths: Paths,
    *,
    batch_size: BatchSize = 256,
    columns: Columns = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Approximate duration of the measurement.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Measure the time of reading, checksums and decoding, and the effect of threads.

    The command reads the first 256 MiB of the files several times and reports the best
    times. Records that are not Examples are delivered as bytes. No files are written.
    """
    ds = fr.open(files_of(paths, joins=True))
    serialized = ds.with_features({"record": fr.Record()})
    start = perf_counter()
    n_records, n_bytes = _first_read(serialized, max(seconds / 10, 1))
    first_s = perf_counter() - start
    skipped = ""
    try:
        n_columns = len(ds.schema)
        if n_columns and (names := names_in(columns)):
            ds = ds.select_columns(names)
            n_columns = len(names)
        skipped = "" if n_columns else "the records have no features"
    except KeyError as error:
        raise typer.BadParameter(error.args[0], param_hint="--columns") from error
    except (fr.DecodeError, fr.SchemaError) as error:
        n_columns, skipped = 0, error.reason

    def loaded(ds: fr.Dataset, num_threads: int) -> _Stage:
        loader = ds.loader(batch_size, num_threads=num_threads, rank=0, world_size=1)
        return partial(_load, loader, n_records)

    stages: dict[str, _Stage] = {}
    is_plain = {content_of(path) for path in ds.files} == {"plain"}
    if not is_plain or not any("://" in path for path in ds.files):
        read = partial(_read, ds.files, n_bytes + 16 * n_records)  # includes framing
        stages["read" if is_plain else "inflate"] = read
    stages["checksums"] = loaded(serialized, 0)
    if not skipped:
        stages["decode"] = loaded(ds, 0)
    most = default_num_threads()
    powers = (1 << i for i in range(most.bit_length()))
    delivered = serialized if skipped else ds
    threads = {
        f"num_threads={n}": loaded(delivered, n)
        for n in sorted({most, *powers} - {0})
        if n <= most
    }
    copies = np.ones((2, max(1, min(_COPIED_BYTES, n_bytes))), np.uint8)
    copy = {_MEMCPY: partial(_copy, copies, n_bytes)}
    with progress_bar("measuring", "seconds") as bar:
        times = measure(stages | threads | copy, seconds, bar)

    def rows(names: Mapping[str, object]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "wall_ns": 1e9 * wall / n_records,
                "cpu_ns": 1e9 * cpu / n_records,
                "records_per_s": n_records / wall,
                "mb_per_s": n_bytes / 1e6 / wall,
            }
            for name in names
            for wall, cpu in [times[name]]
        ]

    report = {
        "n_files": len(ds.files),
        "n_records": n_records,
        "n_bytes": n_bytes,
        "n_columns": n_columns,
        "batch_size": batch_size,
        "num_threads": most,
        "first_read_mb_per_s": n_bytes / 1e6 / first_s,
        "stages": rows(stages),
        "threads": rows(threads),
        "memcpy": rows(copy)[0],
        "decoding_skipped": skipped,
        "verdict": verdict_of({name: times[name][1] for name in stages}),
    }
    if as_json:
        print_json(report)
    else:
        _print_report(report)


# The stages.


def _first_read(serialized: fr.Dataset, seconds: float) -> tuple[int, int]:
    """Read up to 256 MiB for up to `seconds`; return the record and byte counts."""
    n_records = n_bytes = 0
    start = perf_counter()
    for batch in serialized.loader(256, num_threads=0, rank=0, world_size=1):
        record: Any = batch["record"]
        n_records += len(record)
        n_bytes += int(record.offsets[-1] - record.offsets[0])
        if n_bytes >= _SAMPLE_BYTES or perf_counter() - start > seconds:
            break
    if not n_records:
        raise fr.Error(f"no records in {counted(len(serialized.files), 'file')}")
    return n_records, n_bytes


def _read(files: list[str], n_bytes: int) -> None:
    """Read plain files and inflate compressed files, up to `n_bytes` bytes in total."""
    for path in files:
        content = content_of(path)
        pieces = _blocks(path) if content == "plain" else inflated(path, content)
        for piece in pieces:
            n_bytes -= len(piece)
            if n_bytes <= 0:
                return


def _blocks(path: str) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    with open(path, "rb", buffering=0) as file:
        while n_read := file.readinto(buffer):
            yield buffer[:n_read]


def _load(loader: fr.Loader, n_records: int) -> None:
    loader.seek(0)
    for batch in loader:
        n_records -= len(next(iter(batch.values())))
        if n_records <= 0:
            return


def _copy(copies: Any, n_bytes: int) -> None:
    source, target = copies
    for begin in range(0, n_bytes, len(source)):
        n_copied = min(len(source), n_bytes - begin)
        np.copyto(target[:n_copied], source[:n_copied])


# Measuring.


def measure(
    stages: Mapping[str, _Stage],
    seconds: float,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> dict[str, _Times]:
    """Run all stages in turn, for about `seconds`; return the best times of each stage.

    The first round over the stages is a warm-up, and its times are discarded.
    """
    slice_s = seconds / (_N_ROUNDS * len(stages))
    least: dict[str, _Times] = {}
    n_rounds, start = 0, perf_counter()
    while n_rounds < 2 or perf_counter() - start <= seconds:
        for name, stage in stages.items():
            wall, cpu = _timed(stage, slice_s)
            before = least.get(name, (wall, cpu)) if n_rounds > 1 else (wall, cpu)
            least[name] = min(wall, before[0]), min(cpu, before[1])
            progress(int(perf_counter() - start), int(seconds))
        n_rounds += 1
    return least


def _timed(stage: _Stage, seconds: float) -> _Times:
    """Repeat a stage for at least `seconds`; return its mean wall and CPU seconds."""
    n_passes = 0
    wall, cpu = perf_counter(), process_time()
    while not n_passes or perf_counter() - wall < seconds:
        stage()
        n_passes += 1
    return (perf_counter() - wall) / n_passes, (process_time() - cpu) / n_passes


def verdict_of(cpu_s: Mapping[str, float]) -> dict[str, Any]:
    """Return the stage that adds the most CPU time, and advice for reducing it.

    `cpu_s` maps a stage to the CPU seconds of this and all earlier stages together.
    """
    before, own = 0.0, {}
    for name, seconds in cpu_s.items():
        own[name] = max(0.0, seconds - before)
        before = max(before, seconds)
    stage = max(own, key=lambda name: own[name])
    share = own[stage] / max(before, 1e-9)
    text = f"{stage} is the largest cost, {share:.0%} of the CPU time"
    return {"stage": stage, "text": text, "advice": _ADVICE[stage]}


def _print_report(report: dict[str, Any]) -> None:
    record_bytes = report["n_bytes"] / report["n_records"]
    secho(
        f"the first {counted(report['n_records'], 'record')} of "
        f"{counted(report['n_files'], 'file')}, {size(record_bytes)} per record; "
        f"{counted(report['n_columns'], 'column')}, batches of {report['batch_size']:,}",
        bold=True,
    )
    echo(f"first read: {rate(report['first_read_mb_per_s'])} MB/s")
    echo("\neach row reads the same records; + adds a stage to the rows above")
    first, *added = report["stages"]
    labels = {first["name"]: first, **{f"+ {row['name']}": row for row in added}}
    labels |= {f"all, {row['name']}": row for row in report["threads"]}
    labels[_MEMCPY] = report["memcpy"]
    fields = ("wall_ns", "cpu_ns", "records_per_s", "mb_per_s")
    head = ["", "wall ns/record", "CPU ns/record", "records/s", "MB/s"]
    lines = [[k, *(rate(row[name]) for name in fields)] for k, row in labels.items()]
    print_table(head, lines)
    if report["decoding_skipped"]:
        echo(f"decoding was not measured: {printable(report['decoding_skipped'])}")
    secho(f"\nverdict: {report['verdict']['text']}", bold=True)
    echo(report["verdict"]["advice"])
