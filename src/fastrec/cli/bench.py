"""``fastrec bench``: measure the cost of each stage, and report the bottleneck."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

import fastrec as fr
from fastrec import _core
from fastrec.cli import costs, tf_data
from fastrec.cli.arguments import AsJson, BatchSize, Paths
from fastrec.cli.costs import Cost, FirstRead, Sample, Stage
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.terminal import (
    console,
    counted,
    print_table,
    printable,
    rate,
    size,
)
from fastrec.options import default_num_threads

__all__ = ["bench"]

_ALL_THREADS = "all threads"
_MEMCPY = "memcpy"

_HINTS = {
    "disk": "the disk is slower than decoding: keep the files in memory or on a faster "
    "disk, or compress them; more threads do not help",
    "waiting": "one thread had a CPU for less than half of the time: other processes use "
    "the CPUs, or the files do not stay in the page cache",
    "reading": "copying from the page cache is limited by memory: raise num_threads until "
    "memory is saturated, or make records smaller",
    "inflating": "decompress once with cache_dir=; otherwise raise num_threads, split the "
    "data into several files, and install the extra gzip",
    "checksums": "the kernel {kernel!r} makes one pass over the bytes: raise num_threads",
    "decoding": "raise num_threads; skip large columns that you do not need with features= "
    "or ds.select_columns([...]) (try --columns)",
    "copying": "columns are copied about as fast as memory allows: read only the columns "
    "that you need (try --columns), use narrower dtypes, or raise num_threads until "
    "memory is saturated",
}


class Line(NamedTuple):
    """The cost of one stage.

    `cpu_ns` is the CPU time in nanoseconds per record of this stage and all before it,
    `own_ns` that of this stage alone, `share` its part of all stages, 0 to 1.
    """

    name: str
    cpu_ns: float
    own_ns: float
    share: float
    records_per_s: float


def bench(
    paths: Paths,
    *,
    batch_size: BatchSize = 256,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Decode only this column. Repeat the option for several columns.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Approximate duration of the measurement.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Measure the cost of reading, checksums and decoding, and report the bottleneck.

    Reads the first 256 MiB of the files: on one thread stage by stage, and on all
    threads. If TensorFlow is installed, tf.data reads the same columns of the same
    records. Decoding is not measured if the records are not tf.train.Examples.
    """
    out = console()
    files = files_of(paths, joins=True)
    is_streamed = fr.open(files).is_streamed
    first = costs.first_read(files, is_streamed=is_streamed, seconds=seconds / 2)
    if not is_streamed:
        indexed(first.ranges)  # behind a progress bar
    try:
        sample = costs.sample_of(first, columns)
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
    n_threads = default_num_threads()
    one, every = (
        sample.dataset.loader(batch_size, num_threads=n, rank=0, world_size=1)
        for n in (0, n_threads)
    )
    stages: dict[str, Stage] = {"reading": partial(costs.read, sample)}
    if sample.dataset.is_streamed:
        stages["inflating"] = partial(costs.inflate, sample)
    stages["checksums"] = partial(costs.verify, sample)
    stages["decoding"] = partial(costs.decode, one, sample)
    # If records are not decoded, the stage "decoding" only delivers their bytes.
    names = [name for name in stages if not (sample.not_decoded and name == "decoding")]
    stages[_ALL_THREADS] = partial(costs.decode, every, sample)
    stages[_MEMCPY] = costs.memcpy()
    peers, missing = _tf_stages(sample, batch_size, n_threads)
    measured = costs.measure(stages | peers, seconds)

    lines = _lines({name: measured[name] for name in names})
    column_bytes = one.stats.n_bytes / one.stats.n_records
    copying_ns = column_bytes * measured[_MEMCPY].cpu_ns
    n_per_s = measured[_ALL_THREADS].records_per_s
    bottleneck = _bottleneck(
        first,
        lines,
        is_waiting=measured["decoding"].wall_ns > 2 * measured["decoding"].cpu_ns,
        file_bytes_per_s=n_per_s * sample.file_bytes / sample.n_records,
        copying_ns=copying_ns,
    )
    kernel = _core.crc32c_kernel()
    return {
        "n_files_measured": len(sample.ranges),
        "n_records": sample.n_records,
        "n_bytes": sample.n_bytes,
        "file_bytes": sample.file_bytes,
        "n_columns": 0 if sample.not_decoded else len(sample.dataset.schema),
        "column_bytes": round(column_bytes * sample.n_records),
        "batch_size": batch_size,
        "first_read_mb_per_s": first.bytes_per_s / 1e6,
        "first_read_from": "disk" if first.is_from_disk else "page cache",
        "crc32c_kernel": kernel,
        "memcpy_gb_per_s": 1 / measured[_MEMCPY].cpu_ns,
        "stages": [line._asdict() for line in lines],
        "copying_ns": copying_ns,
        "num_threads": n_threads,
        "one_thread_records_per_s": measured["decoding"].records_per_s,
        "all_threads_records_per_s": n_per_s,
        "tf_data": {name: measured[name].records_per_s for name in peers},
        "tf_data_missing": missing,
        "decoding_skipped": sample.not_decoded,
        "bottleneck": bottleneck,
        "hint": _HINTS[bottleneck].format(kernel=kernel),
    }


def _tf_stages(
    sample: Sample, batch_size: int, n_threads: int
) -> tuple[dict[str, Stage], str]:
    """Return stages of tf.data on one and all threads, or the reason why not."""
    if sample.not_decoded:
        return {}, "the records are not decoded"
    stages: dict[str, Stage] = {}
    n_records = sample.n_records
    for n in sorted({1, n_threads}):
        try:
            batches = tf_data.make_batches(
                sample.dataset, n_records, batch_size=batch_size, n_threads=n
            )
        except ModuleNotFoundError:
            return {}, "TensorFlow is not installed"
        except ValueError as error:
            return {}, str(error)
        name = f"tf.data, {counted(n, 'thread')}"
        stages[name] = partial(tf_data.stage, batches, batch_size, n_records)
    return stages, ""


def _lines(cumulative: dict[str, Cost]) -> list[Line]:
    """Return the cost that each stage adds to those before it, at least 0."""
    own: dict[str, float] = {}
    before = 0.0
    for name, cost in cumulative.items():
        own[name] = max(0.0, cost.cpu_ns - before)
        before = max(before, cost.cpu_ns)
    total = sum(own.values())
    return [
        Line(name, cost.cpu_ns, own[name], own[name] / total, cost.records_per_s)
        for name, cost in cumulative.items()
    ]


def _bottleneck(
    first: FirstRead,
    lines: list[Line],
    *,
    is_waiting: bool,
    file_bytes_per_s: float,
    copying_ns: float,
) -> str:
    """Return the bottleneck: the disk, waiting, or the stage with the highest cost."""
    if first.is_from_disk and first.bytes_per_s < file_bytes_per_s:
        return "disk"
    if is_waiting:
        return "waiting"
    most = max(lines, key=lambda line: line.own_ns)
    if most.name == "decoding" and 2 * copying_ns > most.own_ns:
        return "copying"
    return most.name


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

    def rates(records_per_s: float) -> list[str]:
        return [rate(records_per_s, 1), f"{records_per_s * record_bytes / 1e9:.3g}"]

    lines = []
    for line in report["stages"]:
        own = [f"{line['own_ns']:,.0f}", f"{100 * line['share']:.0f} %"]
        lines.append([line["name"], *own, *rates(line["records_per_s"])])
        if line["name"] == "decoding":
            lines.append(["  columns at memcpy speed", f"{report['copying_ns']:,.0f}"])
    print_table(
        out, ["one thread", "ns/record", "share", "records/s", "GB/s up to here"], lines
    )
    out.print()
    one_thread = report["one_thread_records_per_s"]
    every = f"{counted(report['num_threads'], 'thread')} and the consumer"
    totals = {
        "1 thread": one_thread,
        every: report["all_threads_records_per_s"],
        **report["tf_data"],
    }
    lines = [[name, *rates(n), f"{n / one_thread:.2g}x"] for name, n in totals.items()]
    lines.append([_MEMCPY, "", f"{report['memcpy_gb_per_s']:.3g}"])
    print_table(out, ["end to end", "records/s", "GB/s", "vs. 1 thread"], lines)
    if report["tf_data_missing"]:
        out.print(f"tf.data was not measured: {printable(report['tf_data_missing'])}")
    if report["decoding_skipped"]:
        out.print(f"decoding was not measured: {printable(report['decoding_skipped'])}")
    out.print(f"\nbottleneck: {report['bottleneck']}", style="bold")
    out.print(report["hint"])
