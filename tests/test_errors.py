"""Errors: one class for each kind of trouble, with the place as attributes.

Goal
    Every error says what is wrong and where, in words and in attributes, and survives
    the way between processes; the system's refusals stay the builtin OSError.
Method
    Errors made by hand and by damaged files, pickled and copied.
"""

from __future__ import annotations

import copy
import gzip
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import fastrec as fr
from columns import open_dataset
from oracle import example, tfrecord_file

Write = Callable[[bytes], Path]

CLASSES: list[type[fr.Error]] = [
    fr.CorruptionError,
    fr.DecodeError,
    fr.SchemaError,
    fr.LimitError,
]
ATTRIBUTES = ("reason", "path", "record", "offset", "feature")
RECORD = example({b"a": ("int64", [1])})
SPEC = {"a": fr.FixedLen((), "int64")}


@pytest.mark.parametrize("error_class", CLASSES)
def test_each_class_is_an_error_of_ours_and_a_value_error(
    error_class: type[fr.Error],
) -> None:
    assert issubclass(error_class, fr.Error)
    assert issubclass(error_class, ValueError)
    assert [c for c in CLASSES if issubclass(error_class, c)] == [error_class]


@pytest.mark.parametrize("error_class", [fr.Error, *CLASSES])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_class_survives_pickling(
    error_class: type[fr.Error], protocol: int
) -> None:
    whole = error_class("too odd", "train.tfrecord", 3, 170, "label")
    for error in (whole, error_class("too odd")):
        for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
            assert type(twin) is error_class
            assert str(twin) == str(error)
            for name in ATTRIBUTES:
                assert getattr(twin, name) == getattr(error, name), name
    for part in ("too odd", "train.tfrecord", "record 3", "byte 170"):
        assert part in str(whole)


def corrupt(write: Write) -> object:
    return open_dataset(write(tfrecord_file([RECORD])[:-1]), features=SPEC)[0]


def undecodable(write: Write) -> object:
    return open_dataset(write(tfrecord_file([b"\xff"])), features=SPEC)[0]


def unfitting(write: Write) -> object:
    return open_dataset(write(tfrecord_file([b""])), features=SPEC)[0]


@pytest.mark.parametrize(
    ("read", "error_class", "feature"),
    [
        (corrupt, fr.CorruptionError, None),
        (undecodable, fr.DecodeError, None),
        (unfitting, fr.SchemaError, "a"),
    ],
)
def test_errors_of_files_carry_the_place_also_through_a_pickle(
    write: Write,
    read: Callable[[Write], object],
    error_class: type[fr.Error],
    feature: str | None,
) -> None:
    with pytest.raises(error_class) as caught:
        read(write)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert type(error) is error_class
        assert error.reason
        assert error.path
        assert Path(error.path).suffix == ".tfrecord"
        assert error.record == 0
        assert isinstance(error.offset, int)
        assert error.feature == feature
        assert str(error).startswith(error.reason)
        assert f" - at {error.path}" in str(error)


def test_a_spec_error_has_no_place() -> None:
    with pytest.raises(fr.SchemaError) as caught:
        fr.FixedLen((-1,), "int64")
    error = caught.value
    assert (error.path, error.record, error.offset) == (None, None, None)
    assert " - at " not in str(error)


def test_the_systems_refusals_are_os_errors(tmp_path: Path) -> None:
    missing = tmp_path / "nobody.tfrecord"
    with pytest.raises(FileNotFoundError) as caught:
        len(open_dataset(missing))
    assert caught.value.filename == str(missing)
    assert caught.value.errno


def test_a_checksum_error_tells_both_checksums(write: Write) -> None:
    damaged = bytearray(tfrecord_file([RECORD]))
    damaged[14] ^= 1
    with pytest.raises(
        fr.CorruptionError, match=r"stored 0x[0-9a-f]{8}, computed 0x[0-9a-f]{8}"
    ):
        open_dataset(write(bytes(damaged)), features=SPEC)[0]


def test_damage_names_its_cure_after_the_place(write: Write) -> None:
    path = write(tfrecord_file([RECORD])[:-1])
    with pytest.raises(fr.CorruptionError) as caught:
        next(iter(open_dataset(path, features=SPEC).loader(1)))
    error = caught.value
    assert error.cure == f'Use on_error="skip" or run: fastrec doctor {path}'
    assert error.cure not in error.reason
    assert str(error).endswith(f"{path}, record 0, byte 0. {error.cure}")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(twin) == str(error)


def test_what_is_no_damage_has_no_such_cure(write: Write) -> None:
    for data in (b"some words " * 9, tfrecord_file([b"\xff"])):
        with pytest.raises(fr.Error) as caught:
            next(iter(open_dataset(write(data), features=SPEC).loader(1)))
        assert caught.value.cure == ""


def test_paths_in_a_cure_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "a b.gz"
    path.write_bytes(gzip.compress(tfrecord_file([RECORD]))[:-1])
    with pytest.raises(fr.CorruptionError) as caught:
        list(open_dataset(path, features=SPEC).loader(1))
    assert str(caught.value).endswith(f"fastrec doctor '{path}'")


# The list in docs/errors.md.

ROOT = Path(__file__).parents[1]
# (source file, function, what is in front of the text of a reason)
REASONS = [
    ("src/cpp/base/error.cpp", "describe", r"return "),
    ("src/cpp/record/framing.cpp", "describe_foreign", r"return "),
    ("src/cpp/example/feature_decoder.cpp", "FeatureDecoder::describe", r"feature \+ "),
    ("src/cpp/example/sequence.cpp", "describe_steps", r"list \+ "),
]
# Described by the stage that knows the schema; and no reason at all.
IN_GENERAL = {
    "a required feature",
    "a feature holds",
    "a byte string has",
    "an integer",
}
IN_GENERAL |= {"a list of features", "a partition does", "a serialized tensor"}
IN_GENERAL |= {"an index of a", "a column takes", "no error", "unknown error"}
IN_GENERAL |= {"cannot be read: ", "has a step of "}


def reasons_of(path: str, function: str, before: str) -> list[str]:
    """Return what the reasons that a function of the core gives begin with."""
    source = (ROOT / path).read_text(encoding="utf-8")
    begin = re.search(rf"^std::string {function}\(", source, re.MULTILINE)
    assert begin
    body = source[begin.start() : source.index("\n}\n", begin.start())]
    found = re.findall(before + r'"((?:[^"\\]|\\.)+)"', body)
    assert len(found) >= 3
    return [reason for reason in found if not reason.startswith(tuple(IN_GENERAL))]


@pytest.mark.parametrize(("path", "function", "before"), REASONS)
def test_every_reason_of_the_core_is_explained(
    path: str, function: str, before: str
) -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    explained = re.findall(r"`([^`]+)`", text[text.index("## Every reason") :])
    beginnings = [reason.split("N")[0].strip() for reason in explained]
    for reason in reasons_of(path, function, before):
        stripped = reason.strip()
        assert any(
            stripped.startswith(known) or known.startswith(stripped)
            for known in beginnings
            if len(known) >= 3
        ), reason
