"""``fastrec report``: a page about files.

Goal
    The page has schema, distributions, sizes, order, records and images of any files. It
    is one file that loads nothing and runs nothing, whatever names and values are in the
    files. It fits a phone and a desktop, light and dark.
Method
    A parser of HTML over pages of odd files; a headless Chromium, which reports errors,
    requests and widths.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("jinja2")
pytest.importorskip("duckdb", reason="duckdb is not installed")
pillow = pytest.importorskip("PIL.Image")

import fastrec as fr
from browser import CHROMIUM, Browser, chromium
from commands import run
from oracle import example, tfrecord_file

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>&\'"$body'
N = 300

Write = Callable[[Path], Path]


class Page(HTMLParser):
    """The elements, links and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.text = ""
        self.handlers: list[str] = []
        self._is_style = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._is_style = tag == "style"
        for name, value in attrs:
            if name in ("src", "href", "action", "data"):
                self.sources.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.text += "" if self._is_style else data + "\n"

    def handle_endtag(self, tag: str) -> None:
        self._is_style &= tag != "style"


def jpeg(shade: int) -> bytes:
    data = io.BytesIO()
    pillow.new("RGB", (32, 24), (shade, 90, 200)).save(data, "JPEG")
    return data.getvalue()


def photos(folder: Path) -> Path:
    """Files sorted by label, with images, text, numbers and lists."""
    labels = np.arange(N) * 5 // N
    columns: Any = {
        "image": [jpeg(int(label) * 50) for label in labels],
        "label": labels,
        "text": [("cat", "dog")[label % 2] for label in labels],
        "score": np.random.default_rng(0).normal(size=N).astype(np.float32),
        "tags": fr.RaggedArray.from_list([["a", "b"][: n % 3] for n in range(N)]),
        "matrix": np.ones((N, 12), np.float32),
    }
    fr.write(folder / "photos-{shard:05d}-of-{num_shards:05d}", columns, num_shards=3)
    return folder


def hostile(folder: Path) -> Path:
    path = folder / "<b onclick=alert(3)>&amp;.tfrecord"
    text = HOSTILE.encode()
    labels = [text if n else b"</title>" for n in range(20)]
    records = [
        example({text: ("bytes", [text]), b"label": ("bytes", [label])})
        for label in labels
    ]
    path.write_bytes(tfrecord_file(records))
    return path


def one_record(folder: Path) -> Path:
    return _file(folder, [example({b"x": ("float", [float("nan")])})])


def thousand_columns(folder: Path) -> Path:
    features: Any = {f"f{i:04d}".encode(): ("int64", [i, -i]) for i in range(1000)}
    return _file(folder, [example(features)] * 3)


def no_values(folder: Path) -> Path:
    records = [example({b"x": ("int64", [1]), b"e": ("int64", [])}), example({})]
    return _file(folder, records)


def infinities(folder: Path) -> Path:
    values = [float("inf"), float("-inf"), 3e38, -3e38, 0.0]
    return _file(folder, [example({b"x": ("float", [value])}) for value in values])


def extremes(folder: Path) -> Path:
    values = [-(2**63), 2**63 - 1, 0]
    return _file(folder, [example({b"x": ("int64", [value])}) for value in values])


def large_bytes(folder: Path) -> Path:
    records = [example({b"x": ("bytes", [bytes([n]) * 100_000])}) for n in range(8)]
    return _file(folder, records)


def large_images(folder: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (500, 700, 3), np.uint8)
    data = io.BytesIO()
    pillow.fromarray(noise).save(data, "JPEG", quality=95)
    large = data.getvalue()
    assert len(large) > 300_000
    images = [large, large, large[:280_000], b"\xff\xd8\xff" + large]
    return _file(folder, [example({b"x": ("bytes", [image])}) for image in images])


def texts(folder: Path) -> Path:
    return _file(folder, [f"<i>line {n}</i> of text".encode() for n in range(40)])


def sequences(folder: Path) -> Path:
    rows = [
        fr.encode_sequence_example(
            context={"id": n}, feature_lists={"words": [[f"w{n}".encode()]] * (n % 4)}
        )
        for n in range(30)
    ]
    return _file(folder, rows)


def many_files(folder: Path) -> Path:
    for n in range(40):
        part = folder / f"part-{n:02d}"
        part.write_bytes(tfrecord_file([example({b"x": ("int64", [n])})] * (n % 3)))
    return folder


def compressed(folder: Path) -> Path:
    photos(folder)
    for path in sorted(folder.iterdir()):
        path.write_bytes(gzip.compress(path.read_bytes()))
    return folder


def _file(folder: Path, records: list[bytes]) -> Path:
    path = folder / "data.tfrecord"
    path.write_bytes(tfrecord_file(records))
    return path


KINDS: list[Write] = [
    photos,
    hostile,
    one_record,
    thousand_columns,
    no_values,
    infinities,
    extremes,
    large_bytes,
    large_images,
    texts,
    sequences,
    many_files,
    compressed,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


def report(paths: Path, *options: str) -> str:
    output = paths.parent / "report.html"
    shown, _ = run("report", paths, "-o", output, *options)
    assert f"wrote {output}: " in shown
    return output.read_text(encoding="utf-8")


@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_a_page_loads_and_runs_nothing(folder: Path, write: Write) -> None:
    html = report(write(folder))
    page = Page(html)
    assert not {"script", "iframe", "object", "link", "b onclick"} & {*page.tags}
    assert not page.handlers
    assert all(re.match(r"data:image/(jpeg|png);base64,", x) for x in page.sources)
    assert "default-src 'none'" in html
    assert "Columns" in page.text
    assert "$" not in re.sub(r"\$body", "", page.text)


def test_the_page_shows_what_the_files_have(folder: Path) -> None:
    page = Page(report(photos(folder)))
    for text in (
        *("photos-00000-of-00003 and 2 more files", "300\n", "FixedLen((), 'int64')"),
        *("20.0 %", "60.0 %", "records without values\n100\n", "JPEG"),
        *("bytes of a record", "100\n", "not in random order", "of 5 labels"),
    ):
        assert text in page.text, text
    assert page.tags.count("figure") == 48
    assert len(page.sources) == 48 + 4, "and those of the sample records"
    assert page.tags.count("svg") >= 5


def test_a_map_shows_where_each_label_is(folder: Path) -> None:
    path = folder / "sorted.tfrecord"
    fr.write(path, {"label": np.repeat([7, 3], [150, 50])})  # 40 parts of 5 records
    (of_files, *_) = re.findall(r"order of the files.*?</svg>", report(path), re.DOTALL)
    cells = re.findall(r'<rect x="(\d+)" y="(\d)"', of_files)
    assert [(int(x), int(y)) for x, y in cells] == [(x, x // 30) for x in range(40)]


def test_mixed_records_are_not_called_sorted(folder: Path) -> None:
    labels = np.random.default_rng(1).integers(0, 5, 2000)
    fr.write(folder / "mixed.tfrecord", {"label": labels})
    page = Page(report(folder / "mixed.tfrecord"))
    assert "not in random order" not in page.text
    assert "of 5 labels" in page.text


def test_large_images_are_reduced(folder: Path) -> None:
    pytest.importorskip("cv2")
    page = Page(report(large_images(folder)))
    assert len(page.sources) == page.tags.count("figure") == 2
    assert max(map(len, page.sources)) < 80_000
    assert "2 images not shown: damaged, or too large" in page.text


def test_similar_neighbours_are_not_called_mixed(folder: Path) -> None:
    # Each of 40 files is sorted: evenly spread records alone would look mixed.
    labels = np.tile(np.sort(np.arange(1000) % 50), 40)
    for n, part in enumerate(np.split(labels, 40)):
        fr.write(folder / f"part-{n:02d}.tfrecord", {"label": part})
    page = Page(report(folder))
    assert "not in random order" in page.text
    same, *_ = re.findall(r"has the same label: ([\d.]+) %", page.text)
    assert float(same) > 90
    assert re.search(r"At random, .* in (2.0|1.9) %", page.text)


def test_text_of_files_is_escaped(folder: Path) -> None:
    page = Page(report(hostile(folder)))
    assert HOSTILE in page.text
    assert "</title>" in page.text
    assert "<b onclick=alert(3)>&amp;.tfrecord" in page.text
    assert "b" not in {*page.tags} - {"b"} or page.tags.count("b") == 6


def test_columns_without_numbers_or_values_are_shown(folder: Path) -> None:
    page = Page(report(infinities(folder)))
    assert "not finite\n2\n" in page.text
    only = Page(report(thousand_columns(folder)))
    assert "... and 900 more columns" in only.text
    assert "f0999" in only.text, "the schema has every column"


def test_equal_numbers_are_a_line_of_text_instead_of_a_histogram(
    folder: Path,
) -> None:
    texts = [example({b"x": ("bytes", [b"%08d" % n])}) for n in range(2000)]
    page = Page(report(_file(folder, texts)))
    assert "always 8\n" in page.text
    assert "svg" not in page.tags


def test_a_label_can_be_chosen(folder: Path) -> None:
    paths = photos(folder)
    assert "of 2 labels" in Page(report(paths, "--label", "text")).text
    for name in ("score", "nothing"):
        _, errors = run("report", paths, "--label", name, status=1)
        assert f"one integer or string per record, got {name!r}" in errors


@pytest.mark.parametrize(
    ("data", "words"), [(b"", "no records"), (b"damaged" * 9, "error: ")]
)
def test_nothing_is_written_if_files_cannot_be_read(
    folder: Path, data: bytes, words: str
) -> None:
    path = folder / "data.tfrecord"
    path.write_bytes(data)
    output = folder / "page.html"
    result = run("report", path, "-o", output, status=2 if not data else 1)
    assert words in result[1]
    assert not output.exists()


def test_other_files_are_not_replaced(folder: Path) -> None:
    path = one_record(folder)
    data = path.read_bytes()
    _, errors = run("report", path, "-o", path, status=2)
    assert "ends in one of .html" in " ".join(errors.split())
    assert path.read_bytes() == data
    report(path)
    report(path)


# In a browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_a_browser_shows_the_page_at_every_width(
    folder: Path, browser: Browser, write: Write
) -> None:
    report(write(folder))
    page = folder.parent / "report.html"
    browser.errors.clear()
    browser.requests.clear()
    colours = set()
    for width in (360, 1280):
        for scheme in ("light", "dark"):
            browser.open(page, width=width, scheme=scheme)
            assert browser.value("document.documentElement.scrollWidth") == width
            assert browser.value("document.title") != ""
            is_broken = "[...document.images].filter(i => !i.naturalWidth).length"
            assert browser.value(is_broken) == 0
            style = "getComputedStyle(document.body)"
            colours.add((scheme, browser.value(f"{style}.backgroundColor")))
    assert len({colour for _, colour in colours}) == 2
    assert browser.errors == []
    assert {url.split(":")[0] for url in browser.requests} <= {"file", "data"}
    assert sum(url.startswith("file:") for url in browser.requests) == 4


def test_the_browser_of_these_tests_notices_errors(
    folder: Path, browser: Browser
) -> None:
    page = folder / "page.html"
    page.write_text("<script>nothing()</script><img src=missing.png>")
    browser.errors.clear()
    browser.open(page, width=360, scheme="light")
    assert any("nothing is not defined" in error for error in browser.errors)
    assert any("ERR_FILE_NOT_FOUND" in error for error in browser.errors)
    browser.errors.clear()
