"""``fastrec bench``: measure the time of each stage, and name the most expensive one."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

import fastrec as fr
from fastrec import _core
from fastrec.cli import costs
from fastrec.cli.arguments import AsJson, BatchSize, Columns, Paths, names_in
from fastrec.cli.costs import FirstRead, Measured, Sample, Stage
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.terminal import (
    Bar,
    console,
    counted,
    print_table,
    printable,
    rate,
    size,
)
from fastrec.cli.verdict import Timing, busy_reason, verdict_of
from fastrec.options import default_num_threads

__all__ = ["bench"]

_MEMCPY = "memcpy of the same bytes"


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

    Reads the first 256 MiB of the files several times and reports the least times.
    Records that are not Examples are delivered as bytes. It writes no files but indexes.
    """
    out = console()
    files = files_of(paths, joins=True)
    is_streamed = fr.open(files).is_streamed
    first = costs.first_read(files, is_streamed=is_streamed, seconds=seconds / 2)
    if not is_streamed:
        indexed(first.ranges)  # behind a progress bar
    try:
        sample = costs.sample_of(first, names_in(columns))
    except KeyError as error:
        raise typer.BadParameter(error.args[0], param_hint="--columns") from error
    report = {
        "n_files": len(files),
        **_measured(first, sample, batch_size=batch_size, seconds=seconds),
    }
    if as_json:
        out.print(json.dumps(report, indent=1))
    else:
        _print_report(out, report)


# Measuring.


def _measured(
    first: FirstRead, sample: Sample, *, batch_size: int, seconds: float
) -> dict[str, Any]:
    # The stages on one thread, each with all stages before it.
    stages: dict[str, Stage] = {"read": partial(costs.read, sample)}
    if sample.dataset.is_streamed:
        stages["inflate"] = partial(costs.inflate, sample)
    stages["checksums"] = partial(costs.verify, sample)
    last = "deliver" if sample.not_decoded else "decode"
    # All stages, by num_threads; 0 is the last stage above.
    loaders: dict[int, Stage] = {}
    for n in _thread_counts(default_num_threads()):
        loader = sample.dataset.loader(batch_size, num_threads=n, rank=0, world_size=1)
        loaders[n] = partial(costs.decode, loader, sample)
    stages[last] = loaders.pop(0)
    threads = {f"num_threads={n}": stage for n, stage in loaders.items()}
    every = stages | threads | {_MEMCPY: costs.memcpy(sample)}
    with Bar("measuring", "seconds") as bar:
        measured = costs.measure(every, seconds, bar)
    timings = measured.timings
    by_threads = {0: timings[last]}
    by_threads |= {n: timings[f"num_threads={n}"] for n in loaders}
    busy = _busy(measured, sample, [*stages, *threads], one_thread=timings[last])
    verdict = verdict_of({name: timings[name] for name in stages}, by_threads)
    return {
        "n_files_measured": len(sample.ranges),
        "n_records": sample.n_records,
        "n_bytes": sample.n_bytes,
        "file_bytes": sample.file_bytes,
        "n_columns": 0 if sample.not_decoded else len(sample.dataset.schema),
        "batch_size": batch_size,
        "num_threads": default_num_threads(),
        "crc32c_kernel": _core.crc32c_kernel(),
        "first_read_mb_per_s": first.bytes_per_s / 1e6,
        "first_read_from": "disk" if first.is_from_disk else "page cache",
        "stages": [_row(name, timings[name], sample) for name in stages],
        "threads": [_row(name, timings[name], sample) for name in threads],
        "memcpy": _row(_MEMCPY, timings[_MEMCPY], sample),
        "decoding_skipped": sample.not_decoded,
        "busy": busy,
        "verdict": verdict._asdict(),
    }


def _thread_counts(most: int) -> list[int]:
    """Return 0, the powers of two below `most`, and `most`."""
    counts = [0, *(1 << n for n in range(most.bit_length()) if 1 << n < most)]
    return [*counts, most]


def _row(name: str, timing: Timing, sample: Sample) -> dict[str, Any]:
    """Return a row of the table; MB/s are those of the uncompressed records."""
    bytes_per_s = timing.records_per_s * sample.n_bytes / sample.n_records
    return {
        "name": name,
        "wall_ns": timing.wall_ns,
        "cpu_ns": timing.cpu_ns,
        "records_per_s": timing.records_per_s,
        "mb_per_s": bytes_per_s / 1e6,
        "spread": timing.spread,
    }


def _busy(
    measured: Measured, sample: Sample, names: list[str], *, one_thread: Timing
) -> str:
    return busy_reason(
        one_thread,
        max(measured.timings[name].spread for name in names),
        free_cpus=measured.free_cpus,
        num_threads=default_num_threads(),
        # Any process reads a little, such as its libraries.
        disk_share=measured.disk_bytes / max(sample.file_bytes, costs.SAMPLE_BYTES),
    )


# Printing.


def _print_report(out: Console, report: dict[str, Any]) -> None:
    record_bytes = report["n_bytes"] / report["n_records"]
    out.print(
        f"the first {counted(report['n_records'], 'record')} of "
        f"{counted(report['n_files'], 'file')}, {size(record_bytes)} per record; "
        f"{counted(report['n_columns'], 'column')}, batches of {report['batch_size']:,}",
        style="bold",
    )
    out.print(
        f"first read, from the {report['first_read_from']}: "
        f"{rate(report['first_read_mb_per_s'], 1)} MB/s"
    )
    out.print("\neach row reads these records; + adds to the rows above it")
    head = ["", "wall ns/record", "CPU ns/record", "records/s", "MB/s"]
    first, *added = report["stages"]
    labels = {first["name"]: first, **{f"+ {row['name']}": row for row in added}}
    labels |= {f"all, {row['name']}": row for row in report["threads"]}
    labels[_MEMCPY] = report["memcpy"]
    print_table(out, head, [[label, *_cells(row)] for label, row in labels.items()])
    if report["decoding_skipped"]:
        out.print(f"decoding was not measured: {printable(report['decoding_skipped'])}")
    kind = "provisional verdict" if report["busy"] else "verdict"
    out.print(f"\n{kind}: {report['verdict']['text']}", style="bold")
    out.print(report["verdict"]["advice"])
    if report["busy"]:
        spread = max(row["spread"] for row in [*report["stages"], *report["threads"]])
        out.print(
            f"the times are uncertain by up to {spread:.0%}, because {report['busy']}: "
            "run fastrec bench again when the machine is idle"
        )
    every = (report["threads"] or report["stages"])[-1]
    file_mb_per_s = every["mb_per_s"] * report["file_bytes"] / report["n_bytes"]
    is_disk_slower = report["first_read_mb_per_s"] < file_mb_per_s
    if report["first_read_from"] == "disk" and is_disk_slower:
        out.print(
            "\nnote: reading the files from the disk is slower than decoding them"
        )


def _cells(row: dict[str, Any]) -> list[str]:
    names = ("wall_ns", "cpu_ns", "records_per_s", "mb_per_s")
    return [rate(row[name], 1) for name in names]
