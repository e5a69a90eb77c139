"""``fastrec bench``: measure the time of each stage, and name the most expensive one.

Each stage is measured together with all stages before it, in rounds over the same records,
so the cost of a stage is a difference.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np
import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, BatchSize, Columns, Paths, names_in
from fastrec.cli.inputs import files_of
from fastrec.cli.terminal import (
    Bar,
    Stopwatch,
    console,
    counted,
    print_table,
    printable,
    rate,
    size,
)
from fastrec.options import default_num_threads
from fastrec.storage.compression import content_of, inflated

_SAMPLE_BYTES = 256 << 20  # more than CPU caches hold, and few enough to read often
_COPIED_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
_N_ROUNDS = 6
_MAX_SPREAD = 0.25  # of rounds on an idle machine
_THREAD_MARGIN = 1.1  # more threads must be faster by this factor to be recommended

_ADVICE = {
    "read": "copying from the page cache is limited by memory: smaller records help",
    "inflate": "expand the files once with cache_dir=, or install the extra gzip",
    "checksums": "checksums are one pass over the bytes: smaller records help",
    "decode": "decode fewer columns (try --columns), and store arrays as bytes (fr.Raw)",
}
_MEMCPY = "memcpy of the same bytes"

# One run over the sample, which yields numbers of records, perhaps fractions.
_Stage = Callable[[], Generator[float]]


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per record, each the least of all rounds.

    `cpu_ns` is summed over threads. `spread` is the median wall time of the rounds over
    the least, minus 1.
    """

    wall_ns: float
    cpu_ns: float
    spread: float = 0.0


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
    """Measure what reading, checksums and decoding cost, and how threads help.

    Reads the first 256 MiB of the files several times and reports the least times. Records
    that are not Examples are delivered as bytes. It writes no files.
    """
    ds = fr.open(files_of(paths, joins=True))
    serialized = ds.with_features({"record": fr.Record()})
    watch = Stopwatch()
    n_records, n_bytes = _first_read(serialized, seconds / 2)
    first_mb_per_s = n_bytes / 1e6 / watch.seconds
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
    delivered = serialized if skipped else ds

    def loaded(ds: fr.Dataset, num_threads: int) -> _Stage:
        loader = ds.loader(batch_size, num_threads=num_threads, rank=0, world_size=1)
        return lambda: _batches(loader, n_records)

    stages = _byte_stages(ds.files, n_records, n_bytes)
    stages["checksums"] = loaded(serialized, 0)
    if not skipped:
        stages["decode"] = loaded(ds, 0)
    n_threads = [1 << n for n in range(default_num_threads().bit_length())]
    n_threads = [n for n in n_threads if n < default_num_threads()]
    by_threads = {
        f"num_threads={n}": loaded(delivered, n)
        for n in [*n_threads, default_num_threads()]
    }
    copy = {_MEMCPY: lambda: _copies(n_records, n_bytes)}
    with Bar("measuring", "seconds") as bar:
        timings = measure(stages | by_threads | copy, seconds, bar)

    def rows(names: Mapping[str, object]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                **asdict(timings[name]),
                "records_per_s": 1e9 / timings[name].wall_ns,
                "mb_per_s": 1e3 / timings[name].wall_ns * n_bytes / n_records,
            }
            for name in names
        ]

    report = {
        "n_files": len(ds.files),
        "n_records": n_records,
        "n_bytes": n_bytes,
        "n_columns": n_columns,
        "batch_size": batch_size,
        "num_threads": default_num_threads(),
        "first_read_mb_per_s": first_mb_per_s,
        "stages": rows(stages),
        "threads": rows(by_threads),
        "memcpy": rows(copy)[0],
        "decoding_skipped": skipped,
        "verdict": verdict_of(
            {name: timings[name] for name in stages},
            {name: timings[name] for name in by_threads},
        ),
    }
    if as_json:
        console().print(json.dumps(report, indent=1))
    else:
        _print_report(report)


# The stages.


def _first_read(serialized: fr.Dataset, seconds: float) -> tuple[int, int]:
    """Read the first records for at most `seconds`; return their number and bytes."""
    n_records = n_bytes = 0
    watch = Stopwatch()
    for batch in serialized.loader(256, num_threads=0, rank=0, world_size=1):
        column: Any = batch["record"]
        offsets = column.offsets
        n_records += len(offsets) - 1
        n_bytes += int(offsets[-1] - offsets[0])
        if n_bytes >= _SAMPLE_BYTES or watch.seconds > max(seconds, 0.1):
            break
    if not n_records:
        raise fr.Error(f"no records in {counted(len(serialized.files), 'file')}")
    return n_records, n_bytes


def _byte_stages(files: list[str], n_records: int, n_bytes: int) -> dict[str, _Stage]:
    """Return the stages before the records: reading local files, or inflating."""
    contents = {path: content_of(path) for path in files}

    def pieces(path: str) -> Generator[int]:
        if contents[path] != "plain":
            yield from map(len, inflated(path, contents[path]))
            return
        buffer = bytearray(_BLOCK_BYTES)
        with open(path, "rb", buffering=0) as file:
            while n_read := file.readinto(buffer):
                yield n_read

    def stage() -> Generator[float]:
        n_left = n_bytes + 16 * n_records  # with the framing
        for n_read in itertools.chain.from_iterable(map(pieces, files)):
            yield n_records * min(n_read, n_left) / (n_bytes + 16 * n_records)
            n_left -= n_read
            if n_left <= 0:
                return

    if set(contents.values()) == {"plain"}:
        return {} if any("://" in path for path in files) else {"read": stage}
    return {"inflate": stage}


def _batches(loader: fr.Loader, n_records: int) -> Generator[float]:
    n_done = 0
    loader.seek(0)
    for batch in loader:
        n_rows = len(next(iter(batch.values())))
        n_done += n_rows
        yield n_rows
        if n_done >= n_records:
            return


def _copies(n_records: int, n_bytes: int) -> Generator[float]:
    """Copy more memory than CPU caches hold."""
    source, target = np.ones((2, _COPIED_BYTES), np.uint8)
    while True:
        np.copyto(target, source)
        yield n_records * _COPIED_BYTES / max(n_bytes, 1)


# Measuring.


def measure(
    stages: Mapping[str, _Stage],
    seconds: float,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> dict[str, Timing]:
    """Run rounds of all stages for about `seconds`; discard the first round."""
    slice_s = seconds / (_N_ROUNDS * len(stages))
    rounds: list[list[tuple[float, float]]] = []
    begin = perf_counter()
    while len(rounds) < 2 or perf_counter() - begin <= seconds:
        rounds.append([])
        for stage in stages.values():
            rounds[-1].append(_passes(stage, slice_s))
            progress(int(perf_counter() - begin), int(seconds))
    timings = {}
    for name, passes in zip(stages, zip(*rounds[1:], strict=True), strict=True):
        wall, cpu = zip(*passes, strict=True)
        spread = statistics.median(wall) / min(wall) - 1
        timings[name] = Timing(min(wall), min(cpu), spread)
    return timings


def _passes(stage: _Stage, seconds: float) -> tuple[float, float]:
    """Run passes for at least `seconds`, the last one perhaps in part, or one pass.

    Returns the wall and CPU time in nanoseconds per record.
    """
    n_done = 0.0
    is_over = False
    wall, cpu = perf_counter(), process_time()
    while not is_over:
        with contextlib.closing(stage()) as progress:
            for n_more in progress:
                n_done += n_more
                is_over = n_done > 0 and perf_counter() - wall >= seconds
                if is_over:
                    break
    wall_s, cpu_s = perf_counter() - wall, process_time() - cpu
    return 1e9 * wall_s / n_done, 1e9 * cpu_s / n_done


def verdict_of(
    stages: Mapping[str, Timing], by_threads: Mapping[str, Timing]
) -> dict[str, Any]:
    """Return the stage that adds most CPU time, and the fewest threads that are fast.

    `stages` maps each stage to the times of it and all stages before it, on one thread;
    `by_threads` maps a number of threads to the times of all stages. The verdict is
    provisional if rounds of the same work differ.
    """
    before, own = 0.0, {}
    for name, timing in stages.items():
        own[name] = max(0.0, timing.cpu_ns - before)
        before = max(before, timing.cpu_ns)
    stage = max(own, key=lambda name: own[name])
    one = [*stages.values()][-1]
    walls = {"num_threads=0": one.wall_ns}
    walls |= {name: timing.wall_ns for name, timing in by_threads.items()}
    least = min(walls.values())
    fewest = next(name for name in walls if walls[name] <= least * _THREAD_MARGIN)
    gain = one.wall_ns / walls[fewest]
    threads = f"{fewest} is {gain:.1f} times as fast as num_threads=0"
    if fewest == "num_threads=0":
        threads = "threads do not make it faster"
    spread = max(each.spread for each in [*stages.values(), *by_threads.values()])
    return {
        "stage": stage,
        "num_threads": int(fewest.partition("=")[2]),
        "text": f"{stage} is the largest cost, {own[stage] / before:.0%} of the CPU time",
        "advice": f"{_ADVICE[stage]}; {threads}",
        "spread": spread,
        "is_provisional": spread > _MAX_SPREAD,
    }


# Printing.


def _print_report(report: dict[str, Any]) -> None:
    out, verdict = console(), report["verdict"]
    record_bytes = report["n_bytes"] / report["n_records"]
    out.print(
        f"the first {counted(report['n_records'], 'record')} of "
        f"{counted(report['n_files'], 'file')}, {size(record_bytes)} per record; "
        f"{counted(report['n_columns'], 'column')}, batches of {report['batch_size']:,}",
        style="bold",
    )
    out.print(f"first read: {rate(report['first_read_mb_per_s'], 1)} MB/s")
    out.print("\neach row reads these records; + adds to the rows above it")
    first, *added = report["stages"]
    labels = {first["name"]: first, **{f"+ {row['name']}": row for row in added}}
    labels |= {f"all, {row['name']}": row for row in report["threads"]}
    labels[_MEMCPY] = report["memcpy"]
    fields = ("wall_ns", "cpu_ns", "records_per_s", "mb_per_s")
    head = ["", "wall ns/record", "CPU ns/record", "records/s", "MB/s"]
    lines = [[k, *(rate(row[name], 1) for name in fields)] for k, row in labels.items()]
    print_table(out, head, lines)
    if report["decoding_skipped"]:
        out.print(f"decoding was not measured: {printable(report['decoding_skipped'])}")
    kind = "provisional verdict" if verdict["is_provisional"] else "verdict"
    out.print(f"\n{kind}: {verdict['text']}", style="bold")
    out.print(verdict["advice"])
    if verdict["is_provisional"]:
        out.print(
            f"rounds of the same work differ by up to {verdict['spread']:.0%}: "
            "run fastrec bench again when the machine is idle"
        )
    if report["first_read_mb_per_s"] < report["threads"][-1]["mb_per_s"] / 2:
        out.print(
            "\nnote: reading the files the first time is slower than decoding them"
        )
