"""``fastrec report``: a page about files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import fastrec as fr
from fastrec.cli import report_page
from fastrec.cli.arguments import Paths
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.report_order import correlations, label_name, label_orders
from fastrec.cli.report_page import Picture
from fastrec.cli.report_sample import Sample, flat_values, sampled
from fastrec.cli.stats import summary
from fastrec.cli.terminal import (
    console,
    counted,
    printable,
    size,
    when_interrupted,
)
from fastrec.display import image_uri, picture_of
from fastrec.options import MissingExtraError
from fastrec.storage.atomic import replacement

__all__ = ["report"]

_N_ROWS = 4
_MAX_SHEETS = 3
_MAX_PICTURES = 48
_MAX_PICTURE_BYTES = 256 << 10
_MAX_SHEET_BYTES = 4 << 20
_THUMBNAIL = 96, 128  # pixels
_FRAMING_BYTES = 16  # of a record, besides its data


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
        msg = f"must end in .html, got {output}"
        raise typer.BadParameter(msg, param_hint="--output")
    with when_interrupted("nothing was written"):
        files = files_of(paths, joins=False)
        indexed(files)
        ds = fr.open(files)
        if not len(ds):
            msg = f"cannot report on {counted(len(files), 'file')}: no records"
            raise fr.Error(msg)
        text = _page(ds, label)
        with replacement(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    console().print(f"wrote {printable(output)}: {size(len(text.encode()))}")


def _page(ds: fr.Dataset, label: str | None) -> str:
    n_records, stats = summary(ds)
    sample = sampled(ds)
    chosen = label_name(sample) if label is None else label
    n_first, orders = (0, []) if chosen is None else label_orders(sample, chosen)
    correlated = correlations(sample)
    sizes, mean_size = _record_sizes(ds)
    title = _title(ds.files)
    sections = [
        report_page.overview(
            title,
            [
                ("records", f"{len(ds):,}"),
                ("files", f"{len(ds.files):,}"),
                ("on disk", size(ds.nbytes)),
                ("mean record", size(mean_size)),
                ("columns", f"{len(ds.schema):,}"),
                ("compression", _compression(ds)),
            ],
        ),
        *_sheets(sample, chosen),
        report_page.columns(n_records, stats, sample),
        report_page.shards(
            [os.path.basename(path) for path in ds.files],  # noqa: PTH119 (not a Path)
            ds._view.files.n_records_by_file(),
            sizes,
            mean_size,
        ),
        report_page.order(chosen, n_first, orders, correlated, sample)
        if orders or correlated
        else "",
        report_page.rows(sample, _N_ROWS),
    ]
    footer = f"fastrec report, version {fr.__version__}"
    return report_page.page(title, sections, footer)


def _title(files: list[str]) -> str:
    first = os.path.basename(files[0])  # noqa: PTH119 (not a Path)
    if len(files) == 1:
        return first
    return f"{first} and {counted(len(files) - 1, 'more file')}"


def _compression(ds: fr.Dataset) -> str:
    kinds = sorted({"none" if f == "plain" else f for f in ds._view.files.formats})
    return ", ".join(kinds)


def _record_sizes(ds: fr.Dataset) -> tuple[npt.NDArray[np.int64], float]:
    """Return the sizes of all records, and their mean.

    Streams have no offsets, so only their mean is known.
    """
    files = ds._view.files
    if ds.is_streamed:
        n_bytes = int(files.counts().n_bytes.sum())
        return np.zeros(0, np.int64), n_bytes / len(ds) - _FRAMING_BYTES
    offsets = [index.offsets.astype(np.int64) for index in files.indexes()]
    sizes = np.concatenate([np.diff(each) for each in offsets]) - _FRAMING_BYTES
    return sizes, float(sizes.mean())


def _sheets(sample: Sample, label: object) -> list[str]:
    """Return contact sheets of the columns that hold images."""
    sheets = []
    for name in sample.schema:
        pictures, n_left_out = _pictures(sample, name, label)
        if pictures or n_left_out:
            sheets.append(report_page.images(name, pictures, n_left_out))
        if len(sheets) == _MAX_SHEETS:
            break
    return sheets


def _pictures(
    sample: Sample,
    name: Any,  # noqa: ANN401
    label: Any,  # noqa: ANN401
) -> tuple[list[Picture], int]:
    column = sample.batch.get(name)
    if column is None:
        return [], 0
    values, per_record = flat_values(column)
    if isinstance(values, fr.BytesArray):
        is_image = len(values) and image_uri(values[0]) is not None
    else:
        is_image = column.ndim > 2 and picture_of(column[0]) is not None
        values, per_record = column, np.ones(len(column), np.int64)
    if not is_image:
        return [], 0
    records = np.repeat(np.arange(len(per_record)), per_record)
    step = max(1, len(values) // _MAX_PICTURES)
    pictures: list[Picture] = []
    n_bytes = n_left_out = 0
    for i in range(0, len(values), step):
        value = values[i]
        if not isinstance(value, bytes):
            uri = picture_of(value)
        elif len(value) <= _MAX_PICTURE_BYTES:
            uri = image_uri(value)
        else:
            uri = _reduced(value)
        if uri is None or n_bytes + len(uri) > _MAX_SHEET_BYTES:
            n_left_out += 1
            continue
        n_bytes += len(uri)
        pictures.append((uri, _caption(sample, int(records[i]), label)))
        if len(pictures) == _MAX_PICTURES:
            break
    return pictures, n_left_out


def _reduced(data: bytes) -> str | None:
    """Return a large image as a small one; None if it or OpenCV is missing."""
    spec = fr.Image(_THUMBNAIL, fit="center_crop")
    example = fr.encode_example({"image": data})
    try:
        pixels = fr.parse_example([example], {"image": spec})["image"][0]
    except (fr.Error, MissingExtraError):
        return None
    return picture_of(pixels)


def _caption(sample: Sample, record: int, label: Any) -> str:  # noqa: ANN401
    if label is None:
        return ""
    value = sample.row(record)[label]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
