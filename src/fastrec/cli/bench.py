"""``fastrec bench``: what each stage costs on the user's files, and which one limits."""

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
from fastrec.cli.index import files_of, indexed
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

_CURES = {
    "disk": "the disk delivers less than is decoded in the same time: keep the files in "
    "memory or on a faster disk, or compress them; more threads do not help",
    "waiting": "one thread had a CPU for less than half of the time: other processes take "
    "it, or the files do not stay in the page cache",
    "reading": "the bytes are copied from the page cache: more "
    "num_threads help until memory is busy, smaller records always",
    "inflating": "cache_dir= pays for it once; otherwise more num_threads and several "
    "files, and the extra named gzip",
    "checksums": "this is one pass over the bytes, by the kernel {kernel!r}: more "
    "num_threads",
    "decoding": "more num_threads; without columns that you do not need, features= or "
    "ds.select_columns([...]), if they are large (try --columns)",
    "copying": "the columns are copied about as fast as memory allows: only the columns "
    "that you need (try --columns), in narrower dtypes; more num_threads help until "
    "memory is busy",
}


class Line(NamedTuple):
    """One stage: its cost with all stages before it, and what it adds to them.

    `cpu_ns` and `own_ns` are nanoseconds of CPU per record; `share` is that of all stages,
    0 to 1.
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
            help="Decode this column only. Give it several times for several columns.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="How long to measure, about.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Measure what reading, checksums and decoding cost, and report the bottleneck.

    Decoding is left out if the records are not tf.train.Examples.

    The first 256 MiB of the files are read, on one thread stage by stage and on all. If
    TensorFlow is installed, tf.data reads the same columns of the same records.
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


# What is measured.


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
    # Without decoding, a loader delivers the bytes of the records: it has no line.
    names = [name for name in stages if not (sample.not_decoded and name == "decoding")]
    stages[_ALL_THREADS] = partial(costs.decode, every, sample)
    stages[_MEMCPY] = costs.memcpy()
    peers, missing = _tf_stages(sample, batch_size, n_threads)
    found = costs.measured(stages | peers, seconds)

    lines = _lines({name: found[name] for name in names})
    column_bytes = one.stats.n_bytes / one.stats.n_records
    copying_ns = column_bytes * found[_MEMCPY].cpu_ns
    n_per_s = found[_ALL_THREADS].records_per_s
    bottleneck = _bottleneck(
        first,
        lines,
        is_waiting=found["decoding"].wall_ns > 2 * found["decoding"].cpu_ns,
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
        "memcpy_gb_per_s": 1 / found[_MEMCPY].cpu_ns,
        "stages": [line._asdict() for line in lines],
        "copying_ns": copying_ns,
        "num_threads": n_threads,
        "one_thread_records_per_s": found["decoding"].records_per_s,
        "all_threads_records_per_s": n_per_s,
        "tf_data": {name: found[name].records_per_s for name in peers},
        "tf_data_missing": missing,
        "decoding_left_out": sample.not_decoded,
        "bottleneck": bottleneck,
        "cure": _CURES[bottleneck].format(kernel=kernel),
    }


def _tf_stages(
    sample: Sample, batch_size: int, n_threads: int
) -> tuple[dict[str, Stage], str]:
    """Return tf.data on one thread and on all, or why it cannot run."""
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


def _lines(found: dict[str, Cost]) -> list[Line]:
    """Return what each stage adds to those before it, which is never less than 0."""
    own: dict[str, float] = {}
    before = 0.0
    for name, cost in found.items():
        own[name] = max(0.0, cost.cpu_ns - before)
        before = max(before, cost.cpu_ns)
    total = sum(own.values())
    return [
        Line(name, cost.cpu_ns, own[name], own[name] / total, cost.records_per_s)
        for name, cost in found.items()
    ]


def _bottleneck(
    first: FirstRead,
    lines: list[Line],
    *,
    is_waiting: bool,
    file_bytes_per_s: float,
    copying_ns: float,
) -> str:
    """Return what limits: the disk, or the stage that takes most of one thread's time."""
    if first.is_from_disk and first.bytes_per_s < file_bytes_per_s:
        return "disk"
    if is_waiting:
        return "waiting"
    most = max(lines, key=lambda line: line.own_ns)
    if most.name == "decoding" and 2 * copying_ns > most.own_ns:
        return "copying"
    return most.name


# What is printed.


def _print_report(out: Console, report: dict[str, Any]) -> None:
    record_bytes = report["n_bytes"] / report["n_records"]
    out.print(
        f"{counted(report['n_records'], 'record')} of {size(record_bytes)}, the first in "
        f"{counted(report['n_files'], 'file')}; {counted(report['n_columns'], 'column')}, "
        f"batches of {report['batch_size']:,}",
        style="bold",
    )
    out.print(
        f"read first from the {report['first_read_from']}: "
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
        out, ["one thread", "ns/record", "share", "records/s", "GB/s, up to it"], lines
    )
    out.print()
    one_thread = report["one_thread_records_per_s"]
    every = f"{counted(report['num_threads'], 'thread')} and the consumer"
    ends = {
        "1 thread": one_thread,
        every: report["all_threads_records_per_s"],
        **report["tf_data"],
    }
    lines = [[name, *rates(n), f"{n / one_thread:.2g}x"] for name, n in ends.items()]
    lines.append([_MEMCPY, "", f"{report['memcpy_gb_per_s']:.3g}"])
    print_table(out, ["end to end", "records/s", "GB/s", "of 1 thread"], lines)
    if report["tf_data_missing"]:
        out.print(f"tf.data was not measured: {printable(report['tf_data_missing'])}")
    if report["decoding_left_out"]:
        out.print(f"decoding was left out: {printable(report['decoding_left_out'])}")
    out.print(f"\nbottleneck: {report['bottleneck']}", style="bold")
    out.print(report["cure"])
