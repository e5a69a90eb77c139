"""``fastrec report``: write an HTML page about files; ``report.html`` is the template.

Column statistics match ``fastrec stats``. The histograms, the order, the images and the
table of records use a sample: pairs of adjacent records, spread evenly over the files.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from importlib import resources
from itertools import islice
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from jinja2 import Environment

import fastrec as fr
from fastrec.cli.arguments import Paths
from fastrec.cli.files import files_of, indexed, local_output, reports_interrupt
from fastrec.cli.preview import preview
from fastrec.cli.sql import loosened
from fastrec.cli.stats import ColumnSummary, cells, summary
from fastrec.cli.terminal import counted, printable, size
from fastrec.display import as_text, image_format, picture_of, table, value_html
from fastrec.options import MissingExtraError
from fastrec.storage.atomic import replacement

_MAX_RECORDS, _MIN_RECORDS, _MAX_BYTES = 4096, 16, 32 << 20  # of the sample
_N_ROWS = 4
_MAX_CARDS = 100
_COMMON_TEXTS, _COMMON_NUMBERS = 0.2, 0.5  # minimum share for a bar chart
_FACTS = ("not finite", "min", "median", "mean", "max", "distinct")
_N_BINS = 24
_MAX_CORRELATIONS = 8
_MAX_SHEETS, _MAX_PICTURES = 3, 48
_THUMBNAIL = 96, 128  # pixels

_LABEL_NAMES = ("label", "labels", "class", "classes", "target", "category", "y")
_MAX_LABELS = 1000
_MAX_SHOWN = 12  # labels of a heat map
_N_TIMES = 40  # columns of a heat map
_WINDOW_PART = 7  # the buffer contains 1/7 of the records
_SORTED = 0.1  # correlation, or excess of equal neighbours

_Values = npt.NDArray[Any]


def report(
    paths: Paths,
    *,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The HTML page to write or replace."
        ),
    ] = "report.html",
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column with the labels, to check their order; by default a "
            "column called label or class.",
        ),
    ] = None,
) -> None:
    """Write an HTML page: schema, distributions, sizes, order, records and images.

    The page is one file without scripts or external resources. It shows record values.
    """
    target = local_output(output, (".html", ".htm"), "--output", overwrite=True)
    with reports_interrupt():
        files = files_of(paths, joins=False)
        counts, _ = indexed(files)
        ds = fr.open(files)
        if not len(ds):
            raise fr.Error(f"no records in {counted(len(files), 'file')}")
        # Escape control characters in strings.
        environment = Environment(
            autoescape=True,
            finalize=lambda value: printable(value) if type(value) is str else value,
            trim_blocks=True,
        )
        source = resources.files(__package__).joinpath("report.html").read_text("utf-8")
        text = environment.from_string(source).render(
            _content(ds, [counts[path] for path in files], label)
        )
        with replacement(target) as temporary:
            temporary.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {printable(output)}: {size(len(text.encode()))}")


def _content(ds: fr.Dataset, counts: list[int], label: str | None) -> dict[str, Any]:
    """Return the template's variables; `counts` are the record counts of the files."""
    n_records, found = summary(ds)
    # For a list column, count is the number of non-empty lists.
    n_each = {each["name"]: each["count"] for each in found}
    missing = {k: n_records - n_each.get(f"len({k})", n) for k, n in n_each.items()}
    columns = [each for each in found if each["name"] in ds.schema]
    sample = _sampled(ds)
    chosen = _label_name(sample) if label is None else label
    order = _order(sample, chosen) | {"is_beginning": ds.is_streamed}
    first = os.path.basename(ds.files[0])
    n_more = len(ds.files) - 1
    low, high = min(counts), max(counts)
    balance = _histogram(np.array(counts))
    if low and high > 1.01 * low:
        balance["text"] = f"The largest count is {high / low:.3g} times the smallest."
    return {
        "version": fr.__version__,
        "title": f"{first} and {counted(n_more, 'more file')}" if n_more else first,
        "facts": {
            "records": f"{len(ds):,}",
            "files": f"{len(ds.files):,}",
            "on disk": size(ds.nbytes),
            "mean record": size(float(np.mean(sample.n_bytes))),
            "columns": f"{len(ds.schema):,}",
        },
        "sheets": list(islice(_sheets(sample, chosen), _MAX_SHEETS)),
        "columns": [
            {
                "name": as_text(each["name"]),
                "spec": f"fr.{ds.schema[each['name']]!r}",
                "facts": {
                    "records without values": missing[each["name"]],
                    **{name: cells(each)[name] for name in _FACTS},
                },
                "chart": _chart(each, sample.columns[each["name"]]),
            }
            for each in columns[:_MAX_CARDS]
        ],
        "n_more_columns": max(0, len(columns) - _MAX_CARDS),
        "schema": repr(ds.schema).splitlines(),
        "record_bytes": _histogram(np.array(sample.n_bytes)),
        "files": balance,
        "order": order,
        "rows": _rows(sample),
    }


# The sample.


class _Sample(NamedTuple):
    """Columns and sizes of sampled records; the record `numbers` are ascending."""

    numbers: npt.NDArray[np.int64]
    columns: dict[Any, Any]
    n_bytes: list[int]  # of each record

    def single(self, name: Any) -> _Values | None:
        """Return a column as an array; None unless every record has one value."""
        column = self.columns.get(name)
        if isinstance(column, fr.RaggedArray) and (column.lengths == 1).all():
            column = column.values
        if not isinstance(column, (np.ndarray, fr.BytesArray)) or column.ndim != 1:
            return None
        is_bytes = isinstance(column, fr.BytesArray)
        return np.array(column.tolist(), object) if is_bytes else np.asarray(column)

    def first(self, name: Any, i: int) -> Any:
        """Return the first value of column `name` in record `i`; None if empty."""
        value = self.columns[name][i]
        while np.ndim(value):
            value = value[0] if len(value) else None
        return value


def _sampled(ds: fr.Dataset) -> _Sample:
    """Sample about 32 MiB or 4,096 records; of compressed files, the first records."""
    n = len(ds)
    n_wanted = _MAX_BYTES * n // max(ds.nbytes, 1)
    n_wanted = min(n, max(_MIN_RECORDS, min(_MAX_RECORDS, n_wanted)))
    ds = loosened(ds)  # a record may have any number of values
    if ds.is_streamed:
        loader = ds.loader(n_wanted, rank=0, world_size=1, num_threads=0)
        n_bytes = [len(record) for record in islice(ds.records, n_wanted)]
        return _Sample(np.arange(n_wanted), next(iter(loader)), n_bytes)
    begins = np.linspace(0, max(0, n - 2), -(-n_wanted // 2)).astype(np.int64)
    numbers = np.unique(np.minimum([begins, begins + 1], n - 1))
    n_bytes = [len(record) for record in ds.select(numbers).records]
    return _Sample(numbers, ds[numbers], n_bytes)


# Columns.


def _chart(column: ColumnSummary, values: Any) -> dict[str, Any]:
    """Return the data of a bar chart if a few values dominate, else of a histogram."""
    while isinstance(values, fr.RaggedArray):
        values = values.values
    if not values.size:
        return {"text": "no values"}
    is_bytes = isinstance(values, fr.BytesArray)
    common = [(x, n) for x, n in column["common"] if n > 1]
    share = sum(n for _, n in common) / max(column["count"], 1)
    if common and share >= (_COMMON_TEXTS if is_bytes else _COMMON_NUMBERS):
        parts = [(value_html(x), n / column["count"]) for x, n in common]
        others = [("others", 1 - share)] if share < 1 else []
        return {
            "bars": [(x, part, f"{100 * part:.1f} %") for x, part in parts + others]
        }
    return _histogram(values.lengths.ravel() if is_bytes else np.ravel(values))


def _histogram(values: _Values) -> dict[str, Any]:
    values = values[np.isfinite(values)]
    if not len(values):
        return {"text": "no finite values"}
    low, high = values.min().item(), values.max().item()
    if low == high:
        return {"text": f"always {_number(low)}"}
    scaled = values.astype(np.float64) / 2  # halved, because max - min may overflow
    counts, _ = np.histogram(scaled, bins=min(_N_BINS, max(2, len(values))))
    heights = (counts / counts.max()).tolist()
    return {"heights": heights, "low": _number(low), "high": _number(high)}


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


# The order of the records.


def _label_name(sample: _Sample) -> Any:
    """Guess the label column from the column names; None if no name matches."""
    last = {re.split("[/_]", as_text(k).lower())[-1]: k for k in sample.columns}
    for name in filter(None, map(last.get, _LABEL_NAMES)):
        codes = _codes(sample, name)
        if codes is not None and 1 <= codes.max() < _MAX_LABELS:
            return name
    return None


def _codes(sample: _Sample, name: Any) -> npt.NDArray[np.int64] | None:
    """Encode the labels in column `name` as integers from 0; None if impossible."""
    values = sample.single(name)
    if values is None or values.dtype.kind == "f":
        return None
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _order(sample: _Sample, label: Any) -> dict[str, Any]:
    """Measure how well the records are mixed, in file order and after shuffling.

    Raises
    ------
    SchemaError
        If `label` is not a column with one integer or string in each record.
    """
    correlated = sorted(_correlations(sample), key=lambda pair: -abs(pair[1]))
    noise = 1 / max(len(sample.numbers) - 1, 1) ** 0.5  # of a random order
    found: dict[str, Any] = {
        "is_sorted": any(abs(r) > max(_SORTED, 5 * noise) for _, r in correlated),
        "noise": noise,
        "correlated": [
            (as_text(name), abs(r), f"{r:+.2f}")
            for name, r in correlated[:_MAX_CORRELATIONS]
        ],
    }
    if label is None:
        return found
    codes = _codes(sample, label)
    if codes is None:
        raise fr.SchemaError(
            f"a label must be one integer or string per record, got {label!r}"
        )
    n, totals = len(codes), np.bincount(codes)
    common = np.argsort(-totals)[:_MAX_SHOWN]
    at_random = float(((totals / n) ** 2).sum())
    found["orders"] = [
        {
            "name": name,
            "same": np.mean(drawn[at] == drawn[at + 1]) if len(at) else 0.0,
            "shares": _over_time(drawn, common),
        }
        for name, drawn, at in [
            # Pairs of sampled records that are adjacent in the files.
            ("order of the files", codes, np.flatnonzero(np.diff(sample.numbers) == 1)),
            *((name, drawn, np.arange(n - 1)) for name, drawn in _shuffled(codes)),
        ]
    ]
    found["is_sorted"] |= found["orders"][0]["same"] > at_random + _SORTED + noise
    found |= {"label": as_text(label), "n_labels": len(totals)}
    return found | {"at_random": at_random}


def _over_time(
    drawn: npt.NDArray[np.int64], labels: npt.NDArray[np.intp]
) -> list[list[float]]:
    """Return each label's share in every part of the epoch, relative to the maximum."""
    parts = np.array_split(drawn, min(_N_TIMES, len(drawn)))
    shares = np.array([[np.mean(part == label) for part in parts] for label in labels])
    scaled: list[list[float]] = (shares / shares.max()).tolist()
    return scaled


def _shuffled(
    codes: npt.NDArray[np.int64],
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Shuffle `codes` in two ways; yield the name and the result of each shuffle."""
    n = len(codes)
    orders: dict[str, bool | fr.Window] = {
        f"shuffle buffer of 1/{_WINDOW_PART}": fr.Window(max(1, n // _WINDOW_PART)),
        "shuffle=True": True,
    }
    with tempfile.TemporaryDirectory(prefix="fastrec-") as folder:
        fr.write(f"{folder}/labels.tfrecord", {"label": codes})
        ds = fr.open(f"{folder}/labels.tfrecord", index_dir=folder)
        for name, shuffle in orders.items():
            loader = ds.loader(n, shuffle=shuffle, seed=0, rank=0, world_size=1)
            yield name, next(iter(loader))["label"]


def _correlations(sample: _Sample) -> Iterator[tuple[Any, float]]:
    """Yield the name of each numeric column, and its correlation with record order."""
    for name in sample.columns:
        values = sample.single(name)
        if values is None or values.dtype.kind not in "if" or len(values) < 3:
            continue
        numbers = values.astype(np.float64)
        if np.isfinite(numbers).all() and numbers.min() < numbers.max():
            places = np.arange(len(numbers))
            yield name, float(np.corrcoef(numbers, places)[0, 1])


# Images and records.


def _sheets(sample: _Sample, label: Any) -> Iterator[dict[str, Any]]:
    """Yield the template data of a contact sheet for each column of images."""
    for name, column in sample.columns.items():
        values = [sample.first(name, i) for i in range(len(column))]
        is_image = [isinstance(x, bytes) and bool(image_format(x)) for x in values]
        images = np.flatnonzero(is_image).tolist()
        chosen = images[:: max(1, len(images) // _MAX_PICTURES)][:_MAX_PICTURES]
        pictures = [
            (uri, "" if label is None else value_html(sample.first(label, i)))
            for i in chosen
            if (uri := picture_of(values[i]) or _reduced(values[i])) is not None
        ]
        n_left_out = len(chosen) - len(pictures)
        left_out = counted(n_left_out, "image") if n_left_out else ""
        if chosen:
            yield {"name": as_text(name), "pictures": pictures, "left_out": left_out}


def _reduced(data: bytes) -> str | None:
    """Return the URI of an image's thumbnail; None if unreadable or without OpenCV."""
    spec = fr.Image(_THUMBNAIL, fit="center_crop")
    examples = [fr.encode_example({"image": data})]
    try:
        pixels = fr.parse_example(examples, {"image": spec})["image"][0]
    except (fr.Error, MissingExtraError):
        return None
    return picture_of(pixels)


def _rows(sample: _Sample) -> str:
    """Return an HTML table of a few sampled records."""
    places = np.unique(np.linspace(0, len(sample.numbers) - 1, _N_ROWS).astype(int))
    cells = []
    for name, column in sample.columns.items():
        values = [column[i] for i in places.tolist()]
        values = [x[0] if np.ndim(x) == 1 and len(x) == 1 else x for x in values]
        shown = [preview(x) if picture_of(x) is None else x for x in values]
        cells.append([as_text(name), *shown])
    return table(["column", *(f"sample {i}" for i in range(len(places)))], cells)
