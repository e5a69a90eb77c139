"""Errors: one class for each kind of trouble, with the place as attributes.

Goal
    Every error says what is wrong and where, in words and in attributes, and survives
    the way between processes; the system's refusals stay the builtin OSError.
Method
    Errors made by hand and by damaged files, pickled and copied.
"""

from __future__ import annotations

import ast
import copy
import gzip
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec import _core
from object_server import ObjectServer
from oracle import example, tfrecord_file

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
    repair = f"fastrec repair {path} --out OUT"
    assert error.hint == f'Run: {repair}, or use on_error="resync"'
    assert error.hint not in error.reason
    assert str(error).endswith(f"{path}, record 0, byte 0. {error.hint}")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(twin) == str(error)


def test_what_is_no_damage_has_no_such_cure(write: Write) -> None:
    for data in (b"some words " * 9, tfrecord_file([b"\xff"])):
        with pytest.raises(fr.Error) as caught:
            next(iter(open_dataset(write(data), features=SPEC).loader(1)))
        assert caught.value.hint == ""


RECORDS = tfrecord_file([RECORD] * 9)
READERS: list[Callable[[Untyped], object]] = [
    lambda path: list(open_dataset(path, features={"n": "int64"}).loader(2)),
    lambda path: fr.open(path)[8],
    lambda path: list(fr.read_records(path)),
    lambda path: fr.build_index(path),
]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b" <html><body>Not Found", "an HTML page"),
        (b"PAR1\x15\x04\x15", "a Parquet file: run: fastrec convert"),
        (b"ARROW1\0\0", "an Arrow file"),
        (b"PK\x03\x04\x14\0\0\0", "a zip or .npz file"),
        (b"a.txt".ljust(257, b"\0") + b"ustar\0", "a tar file"),
        (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file"),
        (b"SEQ\x06\x19org.apache", "a Hadoop SequenceFile"),
        (b"\x83\xafp\xd1\r\x88J?\0", "a Riegeli or ArrayRecord file"),
        (b"\x28\xb5\x2f\xfd\x04", "a Zstandard file"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG file"),
        (b"\0" * 64, "begins with zeros"),
    ],
)
def test_a_file_of_another_format_is_named(
    write: Write, head: bytes, name: str
) -> None:
    path = write(head + b"\x01" * 500)
    for read in READERS:
        with pytest.raises(fr.CorruptionError) as caught:
            read(path)
        assert name in str(caught.value)
        assert "fastrec repair" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (RECORDS + bytes(5), f"has only zeros from byte {len(RECORDS)} on"),
        (RECORDS + bytes(3 << 20), f"has only zeros from byte {len(RECORDS)} on"),
        (bytes(5000), "has only zeros from byte 0 on"),
    ],
)
def test_every_reader_names_what_follows_the_records(
    write: Write, content: bytes, name: str
) -> None:
    path = write(content)
    for read in READERS:
        with pytest.raises(fr.CorruptionError, match=name):
            read(path)


# A damaged length with the magic of GZIP.
LIKE_GZIP = b"\x1f\x8b\x08" + bytes(5) + b"\xff" * 600


def test_a_foreign_file_opened_as_compressed_is_named(write: Write) -> None:
    path = write(b"PAR1\x15\x04\x15" + b"\1" * 500)
    with pytest.raises(fr.CorruptionError, match="a Parquet file"):
        list(open_dataset(path, features=SPEC, compression="GZIP").loader(2))


@pytest.mark.parametrize("more", [bytes(99) + b"x", b"\x1f\x8b\x09" * 9, LIKE_GZIP])
def test_other_bytes_after_the_records_are_damage(write: Write, more: bytes) -> None:
    for content in (RECORDS + more, gzip.compress(RECORDS + more)):
        path = write(content)
        for read in READERS[:1]:
            with pytest.raises(fr.CorruptionError, match="fastrec repair"):
                read(path)


def test_a_remote_file_of_another_format_is_named(server: ObjectServer) -> None:
    server.objects = {"a.tfrecord": b"<!DOCTYPE html>" + b"x" * 999}
    for read in READERS:
        with pytest.raises(fr.CorruptionError, match="This is an HTML page"):
            read(f"{server.url}/a.tfrecord")


def test_damage_to_the_first_frame_is_repaired(write: Write) -> None:
    data = bytearray(tfrecord_file([b"abc"] * 9))
    data[0] ^= 1
    with pytest.raises(fr.CorruptionError, match="fastrec repair"):
        fr.build_index(write(bytes(data)))


def test_paths_in_a_cure_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "a b.gz"
    path.write_bytes(gzip.compress(tfrecord_file([RECORD]))[:-1])
    with pytest.raises(fr.CorruptionError) as caught:
        list(open_dataset(path, features=SPEC).loader(1))
    assert f"fastrec repair '{path}' --out OUT" in str(caught.value)


# The list in docs/errors.md.

ROOT = Path(__file__).parents[1]
# (source file, where the texts of reasons begin, what is in front of each)
REASONS = [
    ("src/cpp/base/error.cpp", "constexpr Entry kTable", r"ErrorClass::k\w+,\s+"),
    ("src/cpp/record/framing.cpp", "std::string describe_foreign", r"return "),
    (
        "src/cpp/decode/describe.cpp",
        "std::string describe",
        r'feature \+ (?:\(is_list \? "has a step of " : )?',
    ),
]
# Not reasons, or only their beginnings.
IN_GENERAL: tuple[str, ...] = ("holds another", "a padded column exceeds", "no error")
IN_GENERAL += ("cannot be read: ",)


def reasons_of(path: str, where: str, before: str) -> list[str]:
    """Return what the reasons in a part of the core's source begin with."""
    source = (ROOT / path).read_text(encoding="utf-8")
    begin = source.index(f"\n{where}")
    body = source[begin : source.index("\n}", begin)]
    found = re.findall(before + r'"((?:[^"\\]|\\.)+)"', body)
    assert len(found) >= 3
    texts = [re.sub(r"\{(found|signed|expected)\}", "N", text) for text in found]
    return [text for text in texts if not text.startswith(IN_GENERAL)]


@pytest.mark.parametrize(("path", "where", "before"), REASONS)
def test_every_reason_of_the_core_is_explained(
    path: str, where: str, before: str
) -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    explained = re.findall(r"`([^`]+)`", text[text.index("## Every reason") :])
    beginnings = [reason.split("N")[0].strip() for reason in explained]
    for reason in reasons_of(path, where, before):
        stripped = reason.strip()
        assert any(
            stripped.startswith(known) or known.startswith(stripped)
            for known in beginnings
            if len(known) >= 3
        ), reason


# Hints.


def broken(write: Write, *, header: bool, payload: bool, tail: bool) -> Path:
    """A file of 50 records with any of three kinds of damage, in this order."""
    data = bytearray(tfrecord_file([RECORD] * 50))
    size = len(data) // 50
    if header:
        data[3 * size + 1] ^= 4
    if payload:
        data[20 * size + 14] ^= 1
    return write(bytes(data[:-3] if tail else data))


def hint_of(use: Callable[[], object]) -> str:
    with pytest.raises(fr.CorruptionError) as caught:
        use()
    return caught.value.hint


def test_the_first_cure_saves_the_most(write: Write) -> None:
    path = broken(write, header=True, payload=True, tail=True)
    repair = f"fastrec repair {path} --out OUT"
    for use in (
        lambda: len(open_dataset(path, features=SPEC)),
        lambda: list(open_dataset(path, features=SPEC)),
        lambda: list(open_dataset(path, features=SPEC).loader(4)),
    ):
        assert hint_of(use) == f'Run: {repair}, or use on_error="resync"'


def test_a_payload_in_a_proven_frame_is_skipped(write: Write) -> None:
    path = broken(write, header=False, payload=True, tail=False)
    repair = f"fastrec repair {path} --out OUT"
    whole = open_dataset(path, features=SPEC).loader(4)
    assert hint_of(lambda: list(whole)) == f'Use on_error="skip", or run: {repair}'
    # Nothing proves where the last record ends.
    data = bytearray(path.read_bytes())
    size = len(tfrecord_file([RECORD]))
    data[21 * size + 2] ^= 1
    unproven = open_dataset(write(bytes(data)), features=SPEC).loader(4)
    assert hint_of(lambda: list(unproven)).endswith(', or use on_error="resync"')


def test_on_error_is_advised_only_where_it_can_be_passed(write: Write) -> None:
    for damage in ("header", "payload", "tail"):
        kinds = {kind: kind == damage for kind in ("header", "payload", "tail")}
        path = broken(write, **kinds)
        zipped = write(gzip.compress(path.read_bytes()))
        for file in (path, zipped):
            only = f"Run: fastrec repair {file} --out OUT"
            assert hint_of(lambda: list(fr.read_records(file))) == only  # noqa: B023
            if damage == "header":
                assert hint_of(lambda: fr.build_index(file)) == only  # noqa: B023
            batches = fr.read_records(path, batch_size=7)
            with pytest.raises(fr.CorruptionError) as caught:
                list(batches)
            assert "on_error" not in str(caught.value)
    bad = open_dataset(broken(write, header=False, payload=True, tail=False))
    for use in (
        lambda: bad.with_features(SPEC)[20],
        lambda: bad.with_features(SPEC)[18:30],
        lambda: bad.records[20],
        lambda: bad.records[:],
    ):
        assert "on_error" not in hint_of(use)


def test_commands_advise_no_parameter_of_functions(
    write: Write, tmp_path: Path
) -> None:
    pytest.importorskip("typer")
    from commands import run

    path = broken(write, header=True, payload=False, tail=False)
    for arguments in (
        ("index", path),
        ("reshard", path, "-o", tmp_path / "out.tfrecord"),
        ("shuffle", path, "-o", tmp_path / "out"),
        ("convert", path, "-o", tmp_path / "out.parquet"),
    ):
        _, shown = run(*arguments, status=1)
        assert f"fastrec repair {path} --out OUT" in shown.replace("\n", "")
        assert "on_error" not in shown


# Codes.


def test_every_code_is_documented() -> None:
    page = Path(__file__).parents[1] / "docs" / "errors.md"
    documented = dict(
        re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", page.read_text(), re.MULTILINE)
    )
    by_class = {"other", "corruption", "decode", "schema", "limit"}
    source = Path(fr.__file__).parent
    calls = (
        node
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
    )
    of_python = {
        keyword.value.value
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }
    assert of_python >= {"expansion", "no_schema"}
    codes = _core.error_codes()
    assert {**codes, **documented} == documented
    assert set(documented) == set(codes) | by_class | of_python
    for name in set(documented.values()):
        assert issubclass(getattr(fr, name), fr.Error)


def test_codes_say_what_is_wrong(write: Write) -> None:
    size = len(tfrecord_file([RECORD]))
    whole = tfrecord_file([RECORD] * 3)
    flipped = bytearray(whole)
    flipped[size + 9] ^= 1
    altered = bytearray(whole)
    altered[size + 13] ^= 1
    for data, code in [
        (flipped, "length_checksum"),
        (altered, "payload_checksum"),
        (whole[: size + 5], "truncated_header"),
        (whole[: size + 15], "truncated_record"),
        (b"some words " * 9, "not_tfrecord"),
        (gzip.compress(whole)[:-3], "damaged_stream"),
        (gzip.compress(flipped), "length_checksum"),
        (tfrecord_file([b"\xff"]), "truncated_varint"),
    ]:
        with pytest.raises(fr.Error) as caught:
            list(open_dataset(write(bytes(data)), features=SPEC).loader(1))
        error = caught.value
        assert error.code == code
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert twin.code == code
    with pytest.raises(fr.Error) as caught:
        len(open_dataset(write(gzip.compress(whole)), compression=None))
    assert caught.value.code == "compressed"
    with pytest.raises(fr.SchemaError) as schema:
        fr.FixedLen((-1,), "int64")
    assert schema.value.code == "schema"
    missing = open_dataset(write(whole), features={"no": fr.FixedLen((), "int64")})
    with pytest.raises(fr.SchemaError) as schema:
        list(missing.loader(1))
    assert schema.value.code == "feature_missing"
