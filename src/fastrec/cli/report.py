"""``fastrec report``: a page about files, made from the template ``report.html``.

The figures of columns are those of all records. Charts, order, images and records are
those of a sample: pairs of neighbouring records, spread evenly over the files.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from jinja2 import Environment

import fastrec as fr
from fastrec.cli.arguments import Paths
from fastrec.cli.files import files_of, indexed, reports_interrupt
from fastrec.cli.preview import preview
from fastrec.cli.stats import ColumnSummary, summary
from fastrec.cli.terminal import counted, printable, size
from fastrec.display import as_text, image_uri, picture_of, table, value_html
from fastrec.options import MissingExtraError
from fastrec.storage.atomic import replacement

_MAX_RECORDS, _MIN_RECORDS, _MAX_BYTES = 4096, 16, 32 << 20  # of the sample
_N_ROWS = 4
_MAX_CARDS = 100
_MAX_COUNTED = 65_536  # values of a column
_MAX_TEXT = 128  # bytes of a value that is counted
_COMMON_TEXTS, _COMMON_NUMBERS = 0.2, 0.5  # that are shown instead of a histogram
_N_BINS = 24
_MAX_CORRELATIONS = 8

_MAX_SHEETS = 3
_MAX_PICTURES = 48
_MAX_PICTURE_BYTES = 256 << 10
_MAX_SHEET_BYTES = 4 << 20
_THUMBNAIL = 96, 128  # pixels

_LABEL_NAMES = ("label", "labels", "class", "classes", "target", "category", "y")
_MAX_LABELS = 1000
_MAX_SHOWN = 12  # labels of a heat map
_N_TIMES = 40  # columns of a heat map
_WINDOW_PART = 7  # the part of the records in the shuffle buffer
_FIRST_PART = 5  # the part of the epoch in which labels are counted
_SORTED = 0.1  # correlation, or more equal neighbours than at random

_Values = npt.NDArray[Any]


def report(
    paths: Paths,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The page to write or replace."
        ),
    ] = Path("report.html"),
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column whose values should be mixed; by default one that is called "
            "label or class.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a page about files: schema, distributions, sizes, order, records and images.

    The page is one file without scripts, and loads nothing. It shows values of records.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(
            f"must end in .html, got {output}", param_hint="--output"
        )
    with reports_interrupt():
        files = files_of(paths, joins=False)
        counts, _ = indexed(files)
        ds = fr.open(files)
        if not len(ds):
            raise fr.Error(
                f"cannot report on {counted(len(files), 'file')}: no records"
            )
        environment = Environment(autoescape=True, finalize=_shown, trim_blocks=True)
        source = resources.files(__package__).joinpath("report.html").read_text("utf-8")
        text = environment.from_string(source).render(_content(ds, counts, label))
        with replacement(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {printable(output)}: {size(len(text.encode()))}")


def _shown(value: Any) -> Any:
    """Return a value of the template, with control characters of texts escaped."""
    return printable(value) if type(value) is str else value


@dataclass(frozen=True)
class _Sample:
    """Records of a dataset, with ascending record numbers."""

    numbers: npt.NDArray[np.int64]
    columns: dict[Any, Any]
    n_bytes: list[int]  # of each record

    def single(self, name: Any) -> Any:
        """Return a column with one value in each record; None if it has others."""
        column = self.columns.get(name)
        if isinstance(column, fr.RaggedArray) and (column.lengths == 1).all():
            column = column.values
        is_flat = isinstance(column, (np.ndarray, fr.BytesArray)) and column.ndim == 1
        return column if is_flat else None

    def first(self, name: Any, i: int) -> Any:
        """Return the first value of a record; None if it has none."""
        value = self.columns[name][i]
        while np.ndim(value):
            value = value[0] if len(value) else None
        return value

    @property
    def neighbours(self) -> npt.NDArray[np.intp]:
        """The places of the records that the next one of the sample follows."""
        return np.flatnonzero(np.diff(self.numbers) == 1)


def _sampled(ds: fr.Dataset) -> _Sample:
    """Read up to 4,096 records or 32 MiB; of compressed files, the first."""
    n = len(ds)
    n_wanted = _MAX_BYTES * n // max(ds.nbytes, 1)
    n_wanted = min(n, max(_MIN_RECORDS, min(_MAX_RECORDS, n_wanted)))
    if type(ds.schema) is fr.Schema:
        # With VarLen, a record that the schema does not expect is not an error.
        specs: dict[Any, Any] = {
            name: fr.VarLen(spec.dtype) if isinstance(spec, fr.FixedLen) else spec
            for name, spec in ds.schema.items()
        }
        ds = ds.with_features(specs)
    if ds.is_streamed:
        loader = ds.loader(n_wanted, rank=0, world_size=1, num_threads=0)
        n_bytes = [len(record) for record in islice(ds.records, n_wanted)]
        return _Sample(np.arange(n_wanted), next(iter(loader)), n_bytes)
    begins = np.linspace(0, max(0, n - 2), -(-n_wanted // 2)).astype(np.int64)
    numbers = np.unique(np.minimum([begins, begins + 1], n - 1))
    n_bytes = [len(ds.records[number]) for number in numbers.tolist()]
    return _Sample(numbers, ds[numbers], n_bytes)


def _content(
    ds: fr.Dataset, counts: dict[str, int], label: str | None
) -> dict[str, Any]:
    """Return the values of the template."""
    n_records, found = summary(ds)
    n_each = {each.name: each.count for each in found}  # of lists: those with values
    stats = [each for each in found if each.name in ds.schema]
    sample = _sampled(ds)
    chosen = _label_name(sample) if label is None else label
    first = os.path.basename(ds.files[0])
    n_more = len(ds.files) - 1
    rows = np.linspace(0, len(sample.numbers) - 1, _N_ROWS).astype(int).tolist()
    order = _order(sample, chosen, is_spread=not ds.is_streamed)
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
        "sheets": _sheets(sample, chosen),
        "columns": [
            _card(
                each,
                n_records - n_each.get(f"len({each.name})", each.count),
                ds,
                sample,
            )
            for each in stats[:_MAX_CARDS]
        ],
        "n_more_columns": max(0, len(stats) - _MAX_CARDS),
        "schema": repr(ds.schema).splitlines(),
        "record_bytes": _histogram(np.array(sample.n_bytes)),
        "files": _balance(list(counts.values()), ds.files),
        "order": order,
        "rows": _rows(sample, list(dict.fromkeys(rows))),
    }


# Columns.


def _card(
    stats: ColumnSummary, n_missing: int, ds: fr.Dataset, sample: _Sample
) -> dict[str, Any]:
    unit = "" if stats.type.startswith(("BIGINT", "FLOAT")) else " bytes"
    figures = {"min": stats.min, "median": stats.q50, "mean": stats.avg}
    figures["max"] = stats.max
    facts = {f"{k}{unit}": _number(v) for k, v in figures.items() if v is not None}
    missing = {
        "records without values": n_missing,
        "NaN, infinite": stats.n_not_finite,
    }
    facts |= {name: f"{n:,}" for name, n in missing.items() if n}
    if stats.approx_unique:
        facts["distinct values"] = f"about {stats.approx_unique:,}"
    return {
        "name": as_text(stats.name),
        "spec": f"fr.{ds.schema[stats.name]!r}",
        "facts": facts,
        "chart": _chart(sample.columns.get(stats.name)),
    }


def _chart(column: Any) -> dict[str, Any]:
    """Return the common values if they are many of all values, else a histogram."""
    while isinstance(column, fr.RaggedArray):
        column = column.values
    if column is None or not column.size:
        return {"text": "no values"}
    is_bytes = isinstance(column, fr.BytesArray)
    flat = np.array(column.tolist(), object).ravel()
    flat = flat[:: 1 + column.size // _MAX_COUNTED].tolist()
    counts = Counter(x for x in flat if not is_bytes or len(x) <= _MAX_TEXT)
    common = [(x, n) for x, n in counts.most_common(10) if n > 1]
    n_common = sum(n for _, n in common)
    if common and n_common >= (_COMMON_TEXTS if is_bytes else _COMMON_NUMBERS) * len(
        flat
    ):
        bars = [(value_html(x), n / common[0][1], n / len(flat)) for x, n in common]
        others = (
            [("others", 0, 1 - n_common / len(flat))] if n_common < len(flat) else []
        )
        return {
            "bars": [
                (name, share, f"{100 * part:.1f} %")
                for name, share, part in bars + others
            ]
        }
    return _histogram(np.array(list(map(len, flat)) if is_bytes else flat))


def _histogram(values: _Values) -> dict[str, Any]:
    values = values[np.isfinite(values)]
    if not len(values):
        return {"text": "no finite values"}
    low, high = values.min().item(), values.max().item()
    if low == high:
        return {"text": f"always {_number(low)}"}
    scaled = values.astype(np.float64) / 2  # the range of float64 must not overflow
    counts, _ = np.histogram(scaled, bins=min(_N_BINS, max(2, len(values))))
    heights = (counts / counts.max()).tolist()
    return {"heights": heights, "low": _number(low), "high": _number(high)}


def _balance(counts: list[int], files: list[str]) -> dict[str, Any]:
    """Return how evenly the records are divided among the files."""
    low, high = min(counts), max(counts)
    text = f"{low:,} to {high:,}"
    if low and high > 1.01 * low:
        text += f", the largest {high / low:.3g} times the smallest"
    if len(files) > _N_BINS:
        parts = np.array_split(np.array(counts) / max(high, 1), _N_BINS)
        heights = [float(part.mean()) for part in parts]
        return {
            "heights": heights,
            "low": "first file",
            "high": "last file",
            "text": text,
        }
    names = map(os.path.basename, files)
    bars = [
        (name, n / max(high, 1), f"{n:,}")
        for name, n in zip(names, counts, strict=True)
    ]
    return {"bars": bars, "text": text}


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


# The order of the records.


def _label_name(sample: _Sample) -> Any:
    """Return the column that seems to be the label, or None."""
    for wanted in _LABEL_NAMES:
        for name in sample.columns:
            if as_text(name).lower().replace("_", "/").split("/")[-1] == wanted:
                codes = _codes(sample, name)
                if codes is not None and 2 <= codes.max() + 1 <= _MAX_LABELS:
                    return name
    return None


def _codes(sample: _Sample, name: Any) -> npt.NDArray[np.int64] | None:
    """Return the label of each record as a number from 0; None if it has no label."""
    values = sample.single(name)
    if values is None or (isinstance(values, np.ndarray) and values.dtype.kind == "f"):
        return None
    return _ranked(
        np.array(values.tolist(), object if isinstance(values, fr.BytesArray) else None)
    )[0]


def _ranked(values: _Values) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the number of each distinct value, and ranks; equal values share a mean."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    codes = codes.reshape(-1)
    return codes, (np.cumsum(counts) - (counts + 1) / 2)[codes]


def _order(sample: _Sample, label: Any, *, is_spread: bool) -> dict[str, Any]:
    """Return how well the records are mixed in their files, and after a shuffle.

    Raises
    ------
    SchemaError
        If `label` is not a column with one integer or string in each record.
    """
    correlated = _correlations(sample)
    noise = 1 / max(len(sample.numbers) - 1, 1) ** 0.5  # of a random order
    found: dict[str, Any] = {
        "is_spread": is_spread,
        "is_sorted": any(abs(r) > max(_SORTED, 5 * noise) for *_, r in correlated),
        "noise": noise,
        "correlated": [
            (as_text(name), abs(r), f"{place:+.2f}, {following:+.2f}")
            for name, place, following, r in correlated[:_MAX_CORRELATIONS]
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
    n_first, common = max(1, n // _FIRST_PART), np.argsort(-totals)[:_MAX_SHOWN]
    at_random = float(((totals / n) ** 2).sum())
    found["orders"] = [
        {
            "name": name,
            "same": np.mean(drawn[at] == drawn[at + 1]) if len(at) else 0.0,
            "n_first": len(np.unique(drawn[:n_first])),
            "shares": _over_time(drawn, common),
        }
        for name, drawn, at in [
            ("order of the files", codes, sample.neighbours),
            *((name, drawn, np.arange(n - 1)) for name, drawn in _shuffled(codes)),
        ]
    ]
    found["is_sorted"] |= found["orders"][0]["same"] > at_random + _SORTED + noise
    found |= {"label": as_text(label), "n_labels": len(totals), "n_first": n_first}
    return found | {"at_random": at_random}


def _over_time(
    drawn: npt.NDArray[np.int64], labels: npt.NDArray[np.intp]
) -> list[list[float]]:
    """Return the share of each label in each part of the draws; the largest is 1."""
    parts = np.array_split(drawn, min(_N_TIMES, len(drawn)))
    shares = np.array([[np.mean(part == label) for part in parts] for label in labels])
    scaled: list[list[float]] = (shares / shares.max()).tolist()
    return scaled


def _shuffled(
    codes: npt.NDArray[np.int64],
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the labels behind a shuffle buffer, and after a global shuffle."""
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


def _correlations(sample: _Sample) -> list[tuple[Any, float, float, float]]:
    """Return Spearman's rank correlations of columns of single numbers, the largest first.

    Each is the name of the column, the correlation with the place in the files and with
    the next record, and the larger of both.
    """
    found = []
    for name in sample.columns:
        values = sample.single(name)
        if (
            isinstance(values, np.ndarray)
            and len(values) > 2
            and (values != values[0]).any()
        ):
            ranks, places = _ranked(values)[1], sample.neighbours
            following = _correlation(ranks[places], ranks[places + 1])
            place = _correlation(ranks, np.arange(len(ranks)))
            found.append((name, place, following, max(place, following, key=abs)))
    return sorted(found, key=lambda each: -abs(each[-1]))


def _correlation(a: _Values, b: _Values) -> float:
    if len(a) < 3 or not a.std() or not b.std():
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


# Images and records.


def _sheets(sample: _Sample, label: Any) -> list[dict[str, Any]]:
    """Return contact sheets of the columns that hold images."""
    sheets = []
    for name, column in sample.columns.items():
        values = [sample.first(name, i) for i in range(len(column))]
        images = [
            i for i, x in enumerate(values) if isinstance(x, bytes) and image_uri(x)
        ]
        pictures, n_bytes = [], 0
        chosen = images[:: max(1, len(images) // _MAX_PICTURES)][:_MAX_PICTURES]
        for i in chosen:
            is_small = len(values[i]) <= _MAX_PICTURE_BYTES
            uri = image_uri(values[i]) if is_small else _reduced(values[i])
            if uri is not None and n_bytes + len(uri) <= _MAX_SHEET_BYTES:
                n_bytes += len(uri)
                pictures.append(
                    (uri, "" if label is None else value_html(sample.first(label, i)))
                )
        if chosen:
            n_left_out = len(chosen) - len(pictures)
            left_out = counted(n_left_out, "image") if n_left_out else ""
            sheets.append(
                {"name": as_text(name), "pictures": pictures, "left_out": left_out}
            )
    return sheets[:_MAX_SHEETS]


def _reduced(data: bytes) -> str | None:
    """Return a large image as a small one; None if it or OpenCV is missing."""
    spec = fr.Image(_THUMBNAIL, fit="center_crop")
    examples = [fr.encode_example({"image": data})]
    try:
        pixels = fr.parse_example(examples, {"image": spec})["image"][0]
    except (fr.Error, MissingExtraError):
        return None
    return picture_of(pixels)


def _rows(sample: _Sample, places: list[int]) -> str:
    """Return some records of the sample as a table."""
    cells = []
    for name, column in sample.columns.items():
        values = [column[i] for i in places]
        values = [x[0] if np.ndim(x) == 1 and len(x) == 1 else x for x in values]
        shown = [preview(x) if picture_of(x) is None else x for x in values]
        cells.append([as_text(name), *shown])
    return table(["column", *(f"sample {i}" for i in range(len(places)))], cells)
