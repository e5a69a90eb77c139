"""Indexes of files whose records were written again in another order.

Goal
    A stale index is not believed, whatever its size and time say: no intact record is
    lost, repeated or reported as damaged, and no epoch mixes two orders. An index that
    the samples do not unmask is an error at the first record that is not where it says.
    It is built again then, so that the next `for` delivers everything.
Method
    Numbered records are written again in another order of the same total size, next to an
    index of the old order: in the cache, next to the data, and in an object store.
"""

from __future__ import annotations

import gzip
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped
from object_server import ObjectServer, served
from oracle import example, frame_offsets, tfrecord_file

pytestmark = [
    pytest.mark.filterwarnings("ignore:the server reports no exact"),
    pytest.mark.filterwarnings("ignore:shuffle=True reads records"),
    pytest.mark.filterwarnings("ignore:compressed files cannot be divided"),
]

N = 240
SPEC = {"n": fr.FixedLen((), "int64")}
ORDERS: list[dict[str, Untyped]] = [
    {},
    {"shuffle": True},
    {"shuffle": fr.Blocks(lanes=4, block_bytes=4096)},
]
POLICIES = ["raise", "skip", "resync", "mask"]
PLACES = [
    "cache",  # size and time are those of the index
    "next to the data",  # of another time
    "next to the data, same time",
    "store",  # next to the data; the objects have new ETags
    "store without ETags",  # in the cache
]
# Where sampled records unmask the index before a batch is read.
PROBED = ["next to the data", "next to the data, same time", "store"]


def records(numbers: Untyped) -> list[bytes]:
    sizes = random.Random(1)
    by_number = [bytes(sizes.randrange(900)) for _ in range(N)]
    return [
        example({b"n": ("int64", [n]), b"pad": ("bytes", [by_number[n]])})
        for n in numbers
    ]


OLD = tfrecord_file(records(range(N)))
NEW = tfrecord_file(records(reversed(range(N))))


class StaleFiles:
    """A file whose index is that of `OLD` content, at one of `PLACES`."""

    def __init__(
        self, place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.place = place
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._caches = itertools.count()
        self.path = folder / "data" / "a.tfrecord"
        self.path.parent.mkdir()
        self.server: ObjectServer | None = None

    def new_cache(self) -> None:
        cache = self.folder / f"cache{next(self._caches)}"
        self._monkeypatch.setenv("FASTREC_CACHE", str(cache))

    def write(self, new: bytes = NEW) -> str:
        """Write the index of the old content and `new`, and return the path."""
        self.new_cache()
        self.path.write_bytes(OLD)
        before = self.path.stat()
        fr.build_index(self.path, next_to_data=self.place != "cache")
        self.path.write_bytes(new)
        time = before.st_mtime_ns
        if self.place == "next to the data":
            time += 10**9
        os.utime(self.path, ns=(time, time))
        if self.place != "cache":
            self.new_cache()
        if self.server is None:
            return str(self.path)
        return self._upload(new)

    def _upload(self, new: bytes) -> str:
        assert self.server is not None
        index = self.path.parent / ".fastrec" / "index.frecidx"
        url = f"{self.server.url}/data/a.tfrecord"
        self.server.objects = {"data/a.tfrecord": OLD}
        if self.place == "store":
            self.server.objects["data/.fastrec/index.frecidx"] = index.read_bytes()
        else:
            self.server.has_etags = False
            fr.build_index(url)
        self.server.objects["data/a.tfrecord"] = new
        return url


@pytest.fixture(params=PLACES)
def stale(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StaleFiles]:
    files = StaleFiles(request.param, tmp_path, monkeypatch)
    if not request.param.startswith("store"):
        yield files
        return
    with served() as server:
        files.server = server
        yield files


def read(loader: Untyped) -> tuple[list[int], bool]:
    """Return the numbers of an epoch, and whether it was read again after an error."""
    numbers: list[int] = []
    try:
        for batch in loader:
            numbers += batch["n"].tolist()
    except fr.CorruptionError as error:
        assert error.code == "index_mismatch"  # noqa: PT017
        assert "start again" in str(error)  # noqa: PT017
        assert len(set(numbers)) == len(numbers)
        loader.set_epoch(0)
        numbers = [n for batch in loader for n in batch["n"].tolist()]
        is_again = True
    else:
        is_again = False
    assert not loader.report
    return numbers, is_again


@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_rank_delivers_its_records_in_every_order(
    stale: StaleFiles, order: dict[str, Untyped], world_size: int, on_error: str
) -> None:
    path = stale.write()
    options = {"batch_size": 12, "world_size": world_size, **order}
    loaders = [
        fr.open(path, features=SPEC, on_error=on_error).loader(rank=rank, **options)  # type: ignore[arg-type]
        for rank in range(world_size)
    ]
    delivered = [read(loader) for loader in loaders]
    numbers = [n for of_rank, _ in delivered for n in of_rank]
    assert sorted(numbers) == list(range(N))
    if stale.place in PROBED:
        assert not any(is_again for _, is_again in delivered)
    # Other processes find the new index.
    ds = fr.open(path, features=SPEC)
    assert [row["n"] for row in ds] == list(reversed(range(N)))
    assert ds[0]["n"] == N - 1


@pytest.mark.parametrize("on_error", POLICIES)
def test_slices_splits_and_listed_batches(stale: StaleFiles, on_error: str) -> None:
    def opened() -> Untyped:
        return fr.open(stale.write(), features=SPEC, on_error=on_error)  # type: ignore[arg-type]

    new = list(reversed(range(N)))
    assert read(opened().select(range(100, N)).loader(7))[0] == new[100:]
    parts = opened().split([0.5, 0.5], seed=3)
    numbers = [n for part in parts for n in read(part.loader(7))[0]]
    assert sorted(numbers) == list(range(N))

    def batches(_seed: int, _epoch: int) -> list[list[int]]:
        return [[200, 201], [3], [150, 7, 8]]

    expected = [new[i] for batch in batches(0, 0) for i in batch]
    assert read(opened().loader(batches=batches))[0] == expected


def test_rows_and_records_by_number(stale: StaleFiles) -> None:
    def opened() -> Untyped:
        return fr.open(stale.write(), features=SPEC)

    new = list(reversed(range(N)))
    for get in (
        lambda ds: [ds[i]["n"] for i in range(N)],
        lambda ds: ds[:]["n"].tolist(),
        lambda ds: [fr.decode_example(r)["n"] for r in ds.records],
        lambda ds: [fr.decode_example(ds.records[i])["n"] for i in range(N)],
        lambda ds: [n for step in range(20) for n in ds.loader(12).batch(step)["n"]],
        lambda ds: [row["n"] for row in ds],
    ):
        ds = opened()
        try:
            found = get(ds)
        except fr.CorruptionError as error:
            assert error.code == "index_mismatch"  # noqa: PT017
            found = get(ds)
        assert found == new


# A file with another number of records.


MERGED_AT = N // 2  # two records become one


def merged() -> bytes:
    """Return `OLD` with one record in place of two."""
    first, last = frame_offsets(OLD)[MERGED_AT], frame_offsets(OLD)[MERGED_AT + 2]
    n_bytes = last - first - 16
    for n_pad in range(n_bytes):
        one = example({b"n": ("int64", [N]), b"pad": ("bytes", [bytes(n_pad)])})
        if len(one) == n_bytes:
            return OLD[:first] + tfrecord_file([one]) + OLD[last:]
    raise AssertionError


def test_records_that_were_selected_from_other_records_are_an_error(
    stale: StaleFiles,
) -> None:
    """The samples miss two of 240 records, so the index is believed at first."""
    path = stale.write(merged())
    new = [*range(MERGED_AT), N, *range(MERGED_AT + 2, N)]
    ds = fr.open(path, features=SPEC, on_error="skip")
    before, after = ds.select(range(100)), ds.select(range(100, N))
    assert read(before.loader(10)) == (list(range(100)), False)
    loader = after.loader(10)
    with pytest.raises(fr.CorruptionError) as caught:
        list(loader)
    assert caught.value.code == "index_mismatch"
    for part in (before, after):
        with pytest.raises(fr.CorruptionError, match="select again") as caught:
            list(part.loader(10))
        assert caught.value.code == "file_changed"
    assert read(ds.loader(10)) == (new, False)
    assert read(ds.select(range(100, len(ds))).loader(10)) == (new[100:], False)
    assert len(fr.open(path)) == N - 1


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_an_index_that_is_built_again_does_not_change_a_running_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: dict[str, Untyped]
) -> None:
    stale = StaleFiles("cache", tmp_path, monkeypatch)
    ds = fr.open(stale.write(merged()), features=SPEC, on_error="skip")
    loader = ds.loader(10, **order)
    batches = iter(loader)
    delivered: list[int] = next(batches)["n"].tolist()
    # Unless the threads of the loader were first, this finds the stale index.
    with suppress(fr.CorruptionError):
        ds[MERGED_AT]
    assert len(ds) == N - 1
    with pytest.raises(fr.CorruptionError):  # noqa: PT012
        for batch in batches:
            delivered += batch["n"].tolist()
    assert len(set(delivered)) == len(delivered)
    loader.set_epoch(0)
    assert len({n for batch in loader for n in batch["n"].tolist()}) == N - 1


def test_parts_of_a_mix_are_numbered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = StaleFiles("cache", tmp_path, monkeypatch)
    other = tmp_path / "b.tfrecord"
    path = stale.write(merged())
    other.write_bytes(tfrecord_file(records(range(20))))
    a, b = fr.open(path, features=SPEC), fr.open(other, features=SPEC)
    mixed = fr.mix({"a": (a, 1.0), "b": (b, 1.0)}, seed=0)
    joined = fr.concat([a, b])
    with pytest.raises(fr.CorruptionError):
        list(mixed.loader(10))
    rows = [
        (source, n)
        for batch in mixed.loader(10)
        for source, n in zip(batch["__source__"], batch["n"].tolist(), strict=True)
    ]
    assert {n for source, n in rows if source == 1} <= set(range(20))
    expected = [*range(MERGED_AT), N, *range(MERGED_AT + 2, N), *range(20)]
    assert read(joined.loader(10)) == (expected, False)  # of the same files


# Real damage.


def flipped(data: bytes, *places: int) -> bytes:
    damaged = bytearray(data)
    for place in places:
        damaged[place] ^= 1
    return bytes(damaged)


def test_damage_is_reported_as_before(stale: StaleFiles) -> None:
    """An index that matches the rest of a damaged file is kept."""
    offsets = frame_offsets(OLD)
    bad = (3, 100, 101, 102, 200)
    path = stale.write(flipped(OLD, *(offsets[i] + 2 for i in bad)))
    expected = [n for n in range(N) if n not in bad]
    loader = fr.open(path, features=SPEC, on_error="skip").loader(10, shuffle=True)
    assert sorted(n for batch in loader for n in batch["n"].tolist()) == expected
    assert loader.report.records_lost == len(bad)
    with pytest.raises(fr.CorruptionError, match="length checksum") as caught:
        list(fr.open(path, features=SPEC).loader(10, shuffle=True))
    assert "fastrec repair" in caught.value.hint


def test_a_stale_index_of_a_damaged_file(stale: StaleFiles) -> None:
    offsets = frame_offsets(NEW)
    path = stale.write(flipped(NEW, offsets[50] + 2))
    loader = fr.open(path, features=SPEC, on_error="resync").loader(10, shuffle=True)
    found: list[int] = []
    try:
        found = [n for batch in loader for n in batch["n"].tolist()]
    except fr.CorruptionError as error:
        assert error.code == "index_mismatch"  # noqa: PT017
        loader.set_epoch(0)
        found = [n for batch in loader for n in batch["n"].tolist()]
    # The record before the damage is lost, too, only if its end is not proven.
    assert sorted(found) == [n for n in range(N) if n != N - 1 - 50]
    (region,) = loader.report
    assert (region.begin, region.end) == (offsets[50], offsets[51])


# Builders.


def test_build_index_replaces_a_stale_index(stale: StaleFiles) -> None:
    path = stale.write()
    steps: list[int] = []
    fr.build_index(path, progress=lambda done, _total: steps.append(done))
    assert steps[-1] == len(NEW)
    assert read(fr.open(path, features=SPEC).loader(9, shuffle=True))[1] is False


def test_appending_to_a_file_with_a_stale_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = StaleFiles("cache", tmp_path, monkeypatch)
    path = stale.write()
    with fr.Writer(path, append=True) as writer:
        writer.write_record(records([5])[0])
    ds = fr.open(path, features=SPEC)
    assert read(ds.loader(9, shuffle=True))[1] is False
    assert [row["n"] for row in ds] == [*reversed(range(N)), 5]


# Compressed files, whose indexes count the records.


def gzip_of_size(data: bytes, n_bytes: int) -> bytes:
    """Return `data` compressed to `n_bytes`, with a comment in the header."""
    plain = gzip.compress(data, mtime=0)
    comment = b"x" * (n_bytes - len(plain) - 1) + b"\0"
    return plain[:3] + bytes([plain[3] | 16]) + plain[4:10] + comment + plain[10:]


@pytest.mark.parametrize("n_records", [N - 7, N + 7])
@pytest.mark.parametrize("order", [{}, {"shuffle": fr.Window(50)}], ids=str)
@pytest.mark.parametrize("on_error", POLICIES)
def test_streams_of_another_number_of_records_than_were_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n_records: int,
    order: dict[str, Untyped],
    on_error: str,
) -> None:
    monkeypatch.setenv("FASTREC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip_of_size(OLD, 50_000))
    fr.build_index(path)
    before = path.stat()
    numbers = [n % N for n in range(n_records)]
    path.write_bytes(gzip_of_size(tfrecord_file(records(numbers)), 50_000))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def loaders() -> list[Untyped]:
        return [
            fr.open(path, features=SPEC, on_error=on_error).loader(  # type: ignore[arg-type]
                10, rank=rank, world_size=2, **order
            )
            for rank in range(2)
        ]

    for loader in loaders():
        with pytest.raises(fr.CorruptionError, match="open the dataset again"):
            list(loader)
    delivered = [n for loader in loaders() for n in read(loader)[0]]
    assert sorted(delivered) == sorted(numbers)
