"""Display: reprs, and the HTML of notebooks.

Goal
    A repr names files, records and columns as far as they are known, and reads nothing.
    The HTML shows schema, first rows and images, reads only the beginning of the first
    file, and escapes whatever comes from files.
Method
    A parser of HTML counts elements and decodes texts; files that must not be read are
    missing or damaged.
"""

from __future__ import annotations

import base64
import copy
import gzip
import io
import json
import pickle
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from oracle import example, tfrecord_file

HOSTILE = "<script>alert(1)</script>&\"'\x1b[31m"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAA"
    "AABJRU5ErkJggg=="
)
N = 5
TAGS = {"a", "div", "img", "p", "table", "tbody", "td", "th", "thead", "tr"}


class Page(HTMLParser):
    """The elements and the text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.images: list[str] = []
        self.feed(html)
        self.close()
        assert set(self.tags) <= TAGS, "elements of its own only"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style", "src", "alt", "title"}
        if tag == "img":
            self.images.append(dict(attrs)["src"] or "")

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.fixture
def path(write: Write) -> Path:
    records = (
        example(
            {
                b"blob": ("bytes", [bytes(range(250)) * 40]),
                HOSTILE.encode(): ("bytes", [HOSTILE.encode()]),
                b"image": ("bytes", [PNG]),
                b"label": ("int64", [100 + n]),
                b"words": ("bytes", [b"some", b"words"][: n % 3]),
                b"scores": ("float", [n / 8] * 40),
            }
        )
        for n in range(N)
    )
    return write(tfrecord_file(records))


def test_a_repr_reads_nothing(path: Path) -> None:
    missing = path.with_name("missing.tfrecord")
    ds = open_dataset([str(path)] * 3)
    assert repr(ds) == f"<fastrec.Dataset of {str(path)!r} and 2 more files>"
    ds = fr.open([path], features={"label": "int64", "image": "bytes"})
    path.rename(missing)
    text = f"<fastrec.Dataset of {str(path)!r}, columns 'label', 'image'>"
    assert repr(ds) == text


def test_a_repr_has_what_is_known(path: Path) -> None:
    ds = fr.open(path, features={"label": "int64"})
    assert len(ds) == N
    assert repr(ds) == f"<fastrec.Dataset of {str(path)!r}, 5 records, column 'label'>"
    assert f"{str(path)!r}, 2 records selected, column" in repr(ds.select([0, 3]))
    mixed = repr(fr.mix({"a": (ds, 1), "b": (ds, 2)}))
    assert f"of a mix of 'a' (1): {str(path)!r}, 5 records; 'b' (2): " in mixed
    many = {f"f{i}": fr.VarLen("int64") for i in range(1000)}
    assert repr(fr.open(path, features=many)).endswith("'f9' and 990 more>")
    inferred = fr.open(path)
    assert "column" not in repr(inferred)
    assert len(inferred.schema) == 6
    assert "5 records, columns" in repr(inferred)
    streamed = path.with_suffix(".gz")
    streamed.write_bytes(gzip.compress(path.read_bytes()))
    compressed = fr.open(streamed, features={"label": "int64"})
    assert "records" not in repr(compressed)
    assert len(compressed) == N
    assert "5 records" in repr(compressed)


def test_a_row_has_a_short_repr_and_is_a_dict(path: Path) -> None:
    ds = fr.open(path)
    row = ds[0]
    assert isinstance(row, dict)
    assert len(repr(row)) < 800
    assert "'...(10000 bytes)" in repr(row)
    assert row["blob"] == bytes(range(250)) * 40
    assert repr(fr.open(path, features={"label": "int64"})[0]) == repr(
        {"label": row["label"]}
    )
    for other in (copy.copy(row), pickle.loads(pickle.dumps(row))):
        assert repr(other) == repr(row)
        assert [*other] == [*row]
    assert type(row | {}) is dict
    assert json.dumps(fr.open(path, features={"label": "int64"})[0], default=str)
    assert [repr(r)[:20] for r in ds.head(2)] == [repr(row)[:20]] * 2


def test_a_dataset_shows_schema_rows_and_images(path: Path) -> None:
    page = Page(fr.open(path)._repr_html_())
    for text in ("fr.FixedLen((), 'int64')", "100", "102", "float32[40]: 0.125, 0.125"):
        assert text in page.text
    assert "103" not in page.text.splitlines()  # paths have digits, too
    assert "; inferred from the first 5 records" in page.text
    assert (
        page.images == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"] * 3
    )


def test_text_of_files_is_escaped(path: Path) -> None:
    ds = fr.open(path)
    assert HOSTILE in ds.schema
    moved = path.with_name("<b>&.tfrecord")
    path.rename(moved)
    renamed = fr.open(moved)
    escaped = HOSTILE.replace("\x1b", "\\x1b")
    row: Untyped = renamed[0]
    for shown in (renamed, ds.schema, row):
        assert "alert(1)" in Page(shown._repr_html_()).text
    assert escaped in Page(renamed._repr_html_()).text
    assert "<b>&.tfrecord" in Page(renamed._repr_html_()).text


def test_only_the_beginning_of_the_first_file_is_read(path: Path, write: Write) -> None:
    data = path.read_bytes()
    damaged = write(data[:-8] + bytes(8))
    gone = write(data)
    ds = fr.open([damaged, gone], features={"label": "int64"})
    gone.unlink()
    page = Page(ds._repr_html_())
    assert "102" in page.text
    assert "records" not in repr(ds), "nothing was indexed"
    assert not list(path.parent.glob("*.idx"))


@pytest.mark.parametrize("compress", [False, True])
def test_views_and_streams_show_their_rows(path: Path, compress: bool) -> None:
    if compress:
        path = path.with_suffix(".gz")
        path.write_bytes(gzip.compress(path.with_suffix(".tfrecord").read_bytes()))
    ds = fr.open(path, features={"label": "int64"})
    assert "100\n101\n102\n" in Page(ds._repr_html_()).text.replace("\n\n", "\n")
    if not compress:
        page = Page(ds.select([4, 0])._repr_html_())
        assert "104\n100\n" in page.text.replace("\n\n", "\n")
        mixed = Page(fr.mix({"a": (ds, 1), "b": (ds, 1)})._repr_html_())
        assert "fr.FixedLen" in mixed.text


def test_files_that_cannot_be_read_show_the_reason(write: Write) -> None:
    ds = fr.open(write(b"no record at all"))
    assert "cannot read its first rows: " in Page(ds._repr_html_()).text
    assert "; no records" in Page(fr.open(write(b""))._repr_html_()).text
    gone = write(b"x")
    ds = fr.open(gone)
    gone.unlink()
    assert "cannot read its first rows" in Page(ds._repr_html_()).text


def test_a_thousand_columns_are_cut(write: Write) -> None:
    path = write(
        tfrecord_file(
            [example({f"f{i}".encode(): ("int64", [i]) for i in range(1000)})]
        )
    )
    page = Page(fr.open(path)._repr_html_())
    assert page.tags.count("tr") == 51
    assert "... and 950 more" in page.text


@pytest.mark.parametrize("shape", [(28, 28), (28, 30, 1), (9, 8, 3), (8, 8, 4)])
def test_pixels_are_shown_as_images(shape: tuple[int, ...]) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    row: Any = fr.take_rows({"x": pixels}, [0])
    assert row["x"].shape == (1, *shape)
    from fastrec.display import picture_of

    uri = picture_of(pixels[0])
    assert uri is not None
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))
    assert np.array_equal(found, pixels[0].reshape(found.shape))


def test_loaders_show_options_and_statistics(path: Path) -> None:
    loader = fr.open(path, features={"label": "int64"}).loader(2, shuffle=True)
    assert "no batch yet" in Page(loader._repr_html_()).text
    list(loader)
    page = Page(loader._repr_html_())
    for text in ("batch_size\n2\n", "shuffle\nTrue\n", "n_records\n5\n"):
        assert text in page.text
    assert "n_batches\n3\n" in Page(loader.stats._repr_html_()).text
