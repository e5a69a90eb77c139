"""Rows that cannot be read: raised, skipped or masked.

Goal
    Only bad rows are skipped: steps, positions and other rows stay, and the report lists
    the losses. Threads, ranks and interrupts make no difference.
Method
    Files with damaged payloads, records that are not Examples, and records that do not
    fit their spec, compared with intact files. Framing is in test_recovery.py.
"""

from __future__ import annotations

import gzip
import itertools
import pickle
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset, snapshot
from fastrec.on_error import SkippedRegion
from numbered import SPEC, record
from oracle import example, frame, frame_offsets, tfrecord_file

N = 40
# The defect of each record, and the class of its error.
BAD: dict[int, tuple[str, type[fr.Error]]] = {
    3: ("payload checksum mismatch", fr.CorruptionError),
    4: ("exceeds the 0 bytes left", fr.DecodeError),
    17: ("'pixels'", fr.SchemaError),
    39: ("payload checksum mismatch", fr.CorruptionError),
}
GOOD = [n for n in range(N) if n not in BAD]


def bad_payload(n: int) -> bytes:
    if n == 4:
        return b"\x0a\x7f"
    if n == 17:
        return example({b"n": ("int64", [n]), b"pixels": ("bytes", [b"1234"])})
    return record(n)


def bad_file(begin: int, end: int) -> bytes:
    frames = []
    for n in range(begin, end):
        framed = bytearray(frame(bad_payload(n) if n in BAD else record(n)))
        if BAD.get(n, ("", None))[1] is fr.CorruptionError:
            framed[20] ^= 1
        frames.append(bytes(framed))
    return b"".join(frames)


@pytest.fixture(scope="module")
def paths(write: Write) -> list[Path]:
    return [write(bad_file(begin, end)) for begin, end in ((0, 16), (16, N))]


@pytest.fixture(scope="module")
def whole(write: Write) -> Untyped:
    return open_dataset(write(tfrecord_file(map(record, range(N)))), features=SPEC)


def labels(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


def until_error(loader: Any) -> tuple[list[Any], fr.Error]:
    """The batches before the error, and the error."""
    batches = iter(loader)
    delivered = []
    while True:
        try:
            delivered.append(next(batches))
        except fr.Error as error:
            return delivered, error


def test_skipping_omits_only_the_row(paths: list[Path], whole: Untyped) -> None:
    for io, threads in itertools.product(("mmap", "pread"), (0, 1, 2)):
        ds = open_dataset(paths, features=SPEC, io=io, on_error="skip")
        loader = ds.loader(6, num_threads=threads)
        batches = list(loader)
        assert len(batches) == len(loader) == len(whole.loader(6))
        for step, batch in enumerate(batches):
            rows = [n for n in range(6 * step, min(N, 6 * step + 6)) if n not in BAD]
            assert snapshot([batch]) == snapshot([whole[rows]])
        assert "__valid__" not in batches[0]


def test_masking_keeps_the_shape(paths: list[Path], whole: Untyped) -> None:
    for threads in (0, 2):
        ds = open_dataset(paths, features=SPEC, on_error="mask")
        batches = list(ds.loader(6, num_threads=threads))
        for step, batch in enumerate(batches):
            rows = range(6 * step, min(N, 6 * step + 6))
            valid = batch.pop("__valid__")
            assert valid.tolist() == [n not in BAD for n in rows]
            good = fr.take_rows(batch, np.flatnonzero(valid))
            assert snapshot([good]) == snapshot(
                [whole[[n for n in rows if n not in BAD]]]
            )
            assert not batch["n"][~valid].any()
            assert not batch["pixels"][~valid].any()
            assert not batch["words"].lengths[~valid].any()


def test_reports_name_the_records(paths: list[Path]) -> None:
    offsets = [frame_offsets(path.read_bytes()) for path in paths]
    for on_error, threads in itertools.product(("skip", "mask"), (0, 2)):
        ds = open_dataset(paths, features=SPEC, on_error=on_error)
        loader = ds.loader(6, num_threads=threads)
        assert not loader.report
        list(loader)
        assert len(loader.report) == loader.report.records_lost == len(BAD)
        for region, (n, (reason, _)) in zip(loader.report, BAD.items(), strict=True):
            file, within = divmod(n, 16) if n < 16 else (1, n - 16)
            begin, end = offsets[file][within : within + 2]
            assert region == SkippedRegion(
                str(paths[file]), begin, end, region.reason, 1
            )
            assert reason in region.reason
        assert pickle.loads(pickle.dumps(loader.report)) == loader.report
        assert "4 regions" in repr(loader.report)
        assert not ds.report  # framing is whole


def test_a_report_grows_with_delivery_and_restarts(paths: list[Path]) -> None:
    loader = open_dataset(paths, features=SPEC, on_error="skip").loader(
        4, num_threads=2, transform=lambda batch: batch
    )
    sizes = [len(loader.report) for _ in loader]
    assert sizes == [1, 2, 2, 2, 3, 3, 3, 3, 3, 4]
    assert len(loader.report) == 4
    next(iter(loader))
    assert len(loader.report) == 1


def test_raising_is_the_default(paths: list[Path]) -> None:
    loader = open_dataset(paths, features=SPEC).loader(2, num_threads=2)
    batches = iter(loader)
    assert labels([next(batches)]) == [0, 1]
    with pytest.raises(fr.CorruptionError) as caught:
        next(batches)
    assert caught.value.record == 3


@pytest.mark.parametrize("on_error", ["skip", "mask"])
@pytest.mark.parametrize("threads", [0, 2])
def test_max_errors_limits_skipped_rows(
    paths: list[Path], on_error: str, threads: int
) -> None:
    ds = open_dataset(paths, features=SPEC, on_error=on_error)
    assert len(list(ds.loader(6, max_errors=4, num_threads=threads))) == 7
    loader = ds.loader(6, max_errors=2, num_threads=threads)
    delivered, error = until_error(loader)
    assert len(delivered) == 2
    assert isinstance(error, fr.SchemaError)
    assert "max_errors=2" in error.reason
    assert (error.path, error.record) == (str(paths[1]), 1)
    assert error.feature == "pixels"
    assert len(loader.report) == 2
    assert loader.state_dict()["position"] == 12
    with pytest.raises(fr.CorruptionError, match="max_errors=0"):
        list(ds.loader(6, max_errors=0, num_threads=threads))


def test_invalid_options_are_refused(paths: list[Path]) -> None:
    ds = open_dataset(paths, features=SPEC)
    with pytest.raises(ValueError, match='on_error must be "raise", "skip"'):
        open_dataset(paths, on_error="ignore")
    policies: list[Untyped] = [3, lambda _: "skip"]
    for on_error in policies:
        with pytest.raises(TypeError, match='"skip", "resync" or "mask", got'):
            ds.loader(2, on_error=on_error)
        with pytest.raises(TypeError, match='"skip", "resync" or "mask", got'):
            open_dataset(paths, on_error=on_error)
    with pytest.raises(ValueError, match="max_errors"):
        ds.loader(2, max_errors=3)
    with pytest.raises(ValueError, match="max_errors must be at least 0, got"):
        ds.loader(2, on_error="skip", max_errors=-1)
    with pytest.raises(TypeError, match='use on_error="skip"'):
        ds.loader(2, ignore_errors=True)
    skipping = open_dataset(paths, features=SPEC, on_error="skip")
    with pytest.raises(
        ValueError, match="joined datasets must have equal on_error=; pass it to"
    ):
        fr.concat([ds, skipping])
    assert skipping.on_error == pickle.loads(pickle.dumps(skipping)).on_error == "skip"


# Shuffles, ranks, resuming, transforms.


def test_skipping_keeps_steps_and_positions(paths: list[Path], whole: Untyped) -> None:
    ds = open_dataset(paths, features=SPEC, on_error="skip")
    shared = []
    for rank in range(2):
        options = {"shuffle": True, "seed": 5, "rank": rank, "world_size": 2}
        loader, good = ds.loader(3, **options), whole.loader(3, **options)
        batches = list(loader)
        assert len(batches) == len(good)
        for batch, want in zip(batches, good, strict=True):
            rows = [n for n in want["n"].tolist() if n not in BAD]
            assert batch["n"].tolist() == rows
        shared += labels(batches)
        second = ds.loader(3, **options)
        second.seek(4)
        assert snapshot(list(second)) == snapshot(batches[4:])
        assert snapshot([loader.batch(2, epoch=0)]) == snapshot(batches[2:3])
    assert sorted(shared) == GOOD


@pytest.mark.parametrize("on_error", ["skip", "mask"])
@pytest.mark.parametrize("threads", [0, 2])
def test_transforms_receive_the_info_of_the_remaining_rows(
    paths: list[Path], on_error: str, threads: int
) -> None:
    def note(batch: Any, info: fr.BatchInfo) -> Any:
        assert len(info.positions) == len(info.records) == len(batch["n"])
        is_row = info.records >= 0
        assert batch["n"][is_row].tolist() == info.records[is_row].tolist()
        assert ("__valid__" in batch) == (on_error != "skip")
        if "__valid__" in batch:
            assert batch["__valid__"].tolist() == is_row.tolist()
        return {"position": info.positions, "n": batch["n"]}

    ds = open_dataset(paths, features=SPEC, on_error=on_error)
    loader = ds.loader(6, transform=note, num_threads=threads)
    positions = np.concatenate([batch["position"] for batch in loader]).tolist()
    masked = {"skip": 0, "mask": 4}[on_error]
    assert positions.count(-1) == masked
    assert [n for n in positions if n >= 0] == GOOD


def test_per_row_leaves_masked_rows_empty(paths: list[Path]) -> None:
    double = fr.per_row(
        lambda row: row["n"] * 2, out={"twice": fr.FixedLen((), "int64")}
    )
    ds = open_dataset(paths, features=SPEC, on_error="mask")
    for batch in ds.loader(6, transform=double, transform_threads=2):
        assert (batch["twice"] == 2 * batch["n"]).all()


def test_padded_batches_stay_full(paths: list[Path]) -> None:
    for on_error in ("skip", "mask"):
        ds = open_dataset(paths, features=SPEC, on_error=on_error)
        batches = list(ds.loader(7, pad_last=True))
        assert [len(batch["n"]) for batch in batches] == [7] * 6
        valid = np.concatenate([batch["__valid__"] for batch in batches])
        assert np.flatnonzero(valid).tolist() == GOOD


def test_a_batch_of_bad_rows_has_no_rows(paths: list[Path]) -> None:
    ds = open_dataset(paths, features=SPEC, on_error="skip")
    sizes = [len(batch["n"]) for batch in ds.loader(1, num_threads=0)]
    assert sizes == [0 if n in BAD else 1 for n in range(N)]


def test_joined_datasets_with_two_schemas(paths: list[Path], whole: Untyped) -> None:
    """Each part of a batch may lose rows; the order stays."""
    other = {"n": "int64", "pixels": fr.Raw((3,), "uint8"), "words": fr.VarLen("bytes")}
    parts = [
        open_dataset(path, features=spec, on_error="skip")
        for path, spec in zip(paths, (SPEC, dict(reversed(other.items()))), strict=True)
    ]
    batches = list(fr.concat(parts).loader(9, shuffle=True, seed=2))
    for batch, want in zip(batches, whole.loader(9, shuffle=True, seed=2), strict=True):
        rows = [n for n in want["n"].tolist() if n not in BAD]
        assert snapshot([batch]) == snapshot([whole[rows]])


# Outside of loaders.


def test_reading_a_bad_record_by_number_raises(paths: list[Path]) -> None:
    for on_error in ("raise", "skip", "mask"):
        ds = open_dataset(paths, features=SPEC, on_error=on_error)
        for n, (_, kind) in BAD.items():
            with pytest.raises(kind):
                _ = ds[n]
            with pytest.raises(kind):
                _ = ds[n : n + 1]
        with pytest.raises(fr.CorruptionError):
            list(ds.records)
        assert ds[5]["n"] == 5


@pytest.mark.parametrize("on_error", ["skip", "mask"])
def test_the_hint_does_not_repeat_the_current_policy(
    paths: list[Path], on_error: Literal["skip", "mask"]
) -> None:
    ds = open_dataset(paths, features=SPEC, on_error=on_error)
    damaged = next(n for n, (_, kind) in BAD.items() if kind is fr.CorruptionError)
    with pytest.raises(fr.CorruptionError) as caught:
        _ = ds[damaged]
    assert "Use on_error=" not in str(caught.value)
    assert "does not apply to indexing" in caught.value.hint
    assert caught.value.hint.endswith(f"fastrec repair {caught.value.path} --out OUT")


def test_iteration_skips_rows(paths: list[Path]) -> None:
    ds = open_dataset(paths, features=SPEC, on_error="skip")
    assert [row["n"] for row in ds] == GOOD
    assert [row["n"] for row in ds.head(4)] == GOOD[:4]
    masked = list(open_dataset(paths, features=SPEC, on_error="mask"))
    assert [n for n, row in enumerate(masked) if not row["__valid__"]] == list(BAD)


def test_filters_omit_unreadable_records(paths: list[Path]) -> None:
    choices: list[Untyped] = ["skip", "mask"]
    for on_error in choices:
        ds = open_dataset(paths, features=SPEC, on_error=on_error)
        kept = ds.filter(lambda batch: batch["n"] >= 0)
        assert [row["n"] for row in kept] == GOOD
        named = ds.filter(lambda batch: batch["n"] % 2 == 0, columns=["n"])
        assert {row["n"] for row in named} >= {n for n in GOOD if n % 2 == 0}


def test_schemas_are_inferred_from_readable_records(write: Write) -> None:
    records = [bytearray(frame(record(n))) for n in range(5)]
    records[2][20] ^= 1
    path = write(b"".join(bytes(r) for r in records))
    with pytest.raises(fr.CorruptionError):
        _ = open_dataset(path).schema
    ds = open_dataset(path, on_error="skip")
    assert labels(ds.loader(2)) == [0, 1, 3, 4]
    assert ds.infer_schema()["n"] == fr.FixedLen((), "int64")
    nothing = write(bytes(records[2]) * 3)
    with pytest.raises(
        fr.SchemaError, match="cannot infer a schema: all 3 sampled records are"
    ):
        _ = open_dataset(nothing, on_error="skip").schema


# Compressed files that are streamed.


@pytest.fixture(scope="module")
def streams(write: Write) -> list[Path]:
    """A bad payload, a truncated stream, a broken header, an intact file."""
    contents = [
        bad_file(0, 6),
        *(tfrecord_file(map(record, range(begin, begin + 6))) for begin in (6, 12, 18)),
    ]
    broken = bytearray(contents[2])
    broken[frame_offsets(contents[2])[2] + 1] ^= 1
    packed = [gzip.compress(bytes(c)) for c in (*contents[:2], broken, contents[3])]
    packed[1] = packed[1][:-12]
    return [write(data) for data in packed]


def test_the_rest_of_a_damaged_stream_is_skipped(streams: list[Path]) -> None:
    choices: list[Untyped] = ["skip", "resync", "mask"]
    want_report = None
    for on_error, threads, is_counted in itertools.product(
        choices, (0, 2), (False, True)
    ):
        ds = open_dataset(streams, features=SPEC, on_error=on_error)
        n_records = len(ds) if is_counted else None
        loader = ds.loader(4, num_threads=threads)
        batches = list(loader)
        found = [
            n
            for batch in batches
            for n, valid in zip(
                batch["n"].tolist(),
                batch.get("__valid__", np.ones(len(batch["n"]), bool)),
                strict=True,
            )
            if valid
        ]
        assert found[:4] == [0, 1, 2, 5]
        n_cut = found.index(12) - 4
        assert found[4 : 4 + n_cut] == list(range(6, 6 + n_cut))
        assert found[4 + n_cut :] == [12, 13, *range(18, 24)]
        assert n_records in (None, len(ds))
        assert [region.path for region in ds.report] == list(map(str, streams[1:3]))
        assert len(loader.report) == 4
        assert loader.report.regions[:2] == ds.report.regions
        want_report = want_report or (ds.report, loader.report)
        assert (ds.report, loader.report) == want_report
    assert want_report is not None
    assert want_report[0][1].end is None


def test_a_damaged_stream_raises_by_default(streams: list[Path]) -> None:
    ds = open_dataset(streams[1:], features=SPEC)
    with pytest.raises(fr.CorruptionError):
        len(ds)
    assert len(open_dataset(streams[1:], features=SPEC, on_error="skip")) < 18
    loader = ds.loader(3, on_error="skip", shuffle=fr.Window(5))
    assert sorted(labels(loader))[-8:] == [12, 13, *range(18, 24)]
    first = ds.loader(3, on_error="skip")
    batches = list(first)
    second = ds.loader(3, on_error="skip")
    second.seek(2)
    assert snapshot(list(second)) == snapshot(batches[2:])


def test_a_report_of_many_rows_is_bounded(write: Write) -> None:
    n = 10_200
    ds = open_dataset(
        write(tfrecord_file([b""]) * n + frame(record(1))),
        features=SPEC,
        on_error="skip",
    )
    loader = ds.loader(256)
    assert labels(loader) == [1]
    assert (len(loader.report), loader.report.unlisted) == (10_000, 200)
    assert loader.report.records_lost == n
    assert loader.report.is_complete
    assert "10,200 records lost" in repr(loader.report)
    next(iter(loader))
    assert (len(loader.report), loader.report.unlisted) == (256, 0)


def test_reports_count_in_the_singular_and_the_plural() -> None:
    one = SkippedRegion("file", 0, 1, "reason", 1)
    two = SkippedRegion("file", 1, 1001, "reason", 2)
    assert repr(fr.Report((one,))) == (
        "<fastrec.Report of 1 region: 1 record lost, 1 byte>"
    )
    assert repr(fr.Report((one, two), 1)) == (
        "<fastrec.Report of 2 regions: 4 records lost, 1,001 bytes, 1 record not listed>"
    )
    assert str(one) == "file, bytes 0 to 1, 1 record: reason"
    assert str(two) == "file, bytes 1 to 1001, 2 records: reason"


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"num_threads": 0}])
def test_the_report_of_a_loader_has_damaged_framing(
    write: Write, options: dict[str, Any]
) -> None:
    data = bytearray(tfrecord_file(example({b"n": ("int64", [n])}) for n in range(30)))
    offsets = frame_offsets(bytes(data))
    data[offsets[10] + 13] ^= 1  # in a record
    offset = offsets[20]
    data[offset : offset + 12] = bytes(12)
    ds = open_dataset(write(bytes(data)), features={"n": "int64"}, on_error="skip")
    loader = ds.loader(4, **options)
    for _ in range(2):  # each epoch reports it again
        n_read = sum(len(batch["n"]) for batch in loader)
        assert n_read == 19
        framing, row = loader.report
        assert (framing.begin, framing.records) == (offset, None)
        assert row.records == 1
        assert not loader.report.is_complete
    assert list(ds.report) == [framing]
