"""Writer: from values to files.

Goal
    Files follow protobuf and the TFRecord format. Values are converted as documented, or
    raise an error with a hint. Only complete files have their final names.
Method
    Protobuf's parser and the crc32c package read the files. Processes are killed, disks
    filled up, and writers left unclosed.
"""

from __future__ import annotations

import enum
import errno
import gc
import os
import re
import signal
import struct
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastrec as fr
from children import run_python
from fastrec.compat import tf_io, tf_train

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Row = dict[Any, Any]
Features = dict[str, tuple[str, list[Any]]]


class Color(enum.IntEnum):
    RED = 7


class Text(str):
    __slots__ = ()


# --- An independent reader ------------------------------------------------------------


def parsed(record: bytes) -> Features:
    """Return the kind and values of every feature, as read by protobuf."""
    features = tf_train.Example.FromString(record).features.feature
    return {
        key: (
            feature.WhichOneof("kind"),
            list(getattr(feature, feature.WhichOneof("kind")).value),
        )
        for key, feature in features.items()
    }


def masked_crc(data: bytes) -> bytes:
    crc = crc32c.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def payloads(data: bytes) -> Iterator[bytes]:
    """Yield the payloads of a file, and check its frames."""
    begin = 0
    while begin < len(data):
        (length,) = struct.unpack_from("<Q", data, begin)
        end = begin + 12 + length
        payload = data[begin + 12 : end]
        assert data[begin + 8 : begin + 12] == masked_crc(data[begin : begin + 8])
        assert data[end : end + 4] == masked_crc(payload)
        yield payload
        begin = end + 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.tfrecord"


def assert_nothing_in(directory: Path) -> None:
    assert list(directory.iterdir()) == []


# --- Examples -------------------------------------------------------------------------

keys = st.text(max_size=6)
floats = st.floats(width=32, allow_nan=False)
int64s = st.integers(INT64_MIN, INT64_MAX)
value_lists = st.one_of(
    st.lists(int64s, min_size=1, max_size=40).map(lambda v: ("int64_list", v)),
    st.lists(floats, min_size=1, max_size=40).map(lambda v: ("float_list", v)),
    st.lists(st.binary(max_size=200), min_size=1, max_size=5).map(
        lambda v: ("bytes_list", v)
    ),
)


@given(features=st.dictionaries(keys, value_lists, max_size=6))
def test_protobuf_reads_encoded_records(features: Features) -> None:
    row = {key: values for key, (_, values) in features.items()}
    assert parsed(fr.encode_example(row)) == features


@given(features=st.dictionaries(keys, value_lists, max_size=6))
def test_records_have_the_size_protobuf_writes(
    features: Features,
) -> None:
    record = fr.encode_example({key: values for key, (_, values) in features.items()})
    # Protobuf omits `features` only in an empty message.
    assert len(tf_train.Example.FromString(record).SerializeToString()) == len(record)


@given(values=st.lists(int64s, max_size=300))
def test_arrays_and_lists_encode_equally(values: list[int]) -> None:
    array = fr.encode_example({"a": np.array(values, np.int64)})
    assert parsed(array) == {"a": ("int64_list", values)}
    if values:
        assert array == fr.encode_example({"a": values})


def test_features_keep_the_order_of_the_mapping() -> None:
    forward = fr.encode_example({"a": 1, "b": 2})
    backward = fr.encode_example({"b": 2, "a": 1})
    assert forward != backward
    assert forward.index(b"a") < forward.index(b"b")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, "int64_list", [1]),
        (3, "int64_list", [3]),
        (INT64_MIN, "int64_list", [INT64_MIN]),
        (Color.RED, "int64_list", [7]),
        (np.bool_(True), "int64_list", [1]),
        (np.int8(-3), "int64_list", [-3]),
        (np.uint64(3), "int64_list", [3]),
        ([True, 2, np.int64(3), Color.RED], "int64_list", [1, 2, 3, 7]),
        ((1, np.array(2)), "int64_list", [1, 2]),
        (np.array(5, "uint16"), "int64_list", [5]),
        (np.array([True, False]), "int64_list", [1, 0]),
        (np.array([], "int64"), "int64_list", []),
        (np.arange(6)[::-2], "int64_list", [5, 3, 1]),
        (np.array([1, -2], ">i4"), "int64_list", [1, -2]),
        (np.array([2**64 - 1], "uint64").view("int64"), "int64_list", [-1]),
        (0.5, "float_list", [0.5]),
        (np.float16(0.5), "float_list", [0.5]),
        (np.float32(0.5), "float_list", [0.5]),
        (np.float64(0.5), "float_list", [0.5]),
        ([0.5, np.float32(1), np.float64(2)], "float_list", [0.5, 1.0, 2.0]),
        (float("inf"), "float_list", [float("inf")]),
        (np.array([1, 2], "float16"), "float_list", [1.0, 2.0]),
        (np.array([1, 2], ">f8"), "float_list", [1.0, 2.0]),
        (np.arange(4, dtype="float32")[::2], "float_list", [0.0, 2.0]),
        (np.array([], "float64"), "float_list", []),
        ("h\u00e9", "bytes_list", [b"h\xc3\xa9"]),
        (Text("t"), "bytes_list", [b"t"]),
        (np.str_("s"), "bytes_list", [b"s"]),
        (b"a\0", "bytes_list", [b"a\0"]),
        (np.bytes_(b"b"), "bytes_list", [b"b"]),
        (bytearray(b"c"), "bytes_list", [b"c"]),
        (memoryview(b"dd"), "bytes_list", [b"dd"]),
        (np.zeros((2, 2), "uint8").data, "bytes_list", [bytes(4)]),
        (
            ["s", b"b", bytearray(b""), memoryview(b"m")],
            "bytes_list",
            [b"s", b"b", b"", b"m"],
        ),
        (fr.BytesArray.from_list([b"x", b"", b"yz"]), "bytes_list", [b"x", b"", b"yz"]),
        (fr.BytesArray.from_list([b"x", b"yz"])[1:], "bytes_list", [b"yz"]),
        (fr.BytesArray.from_list([]), "bytes_list", []),
    ],
)
def test_values_are_converted_as_documented(
    value: object, kind: str, expected: list[Any]
) -> None:
    assert parsed(fr.encode_example({"f": value})) == {"f": (kind, expected)}


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]
)
def test_integer_arrays_of_every_dtype_keep_their_extremes(dtype: str) -> None:
    info = None if dtype == "bool" else np.iinfo(dtype)
    values = [0, 1] if info is None else [int(info.min), 0, int(info.max)]
    record = fr.encode_example({"f": np.array(values, dtype)})
    assert parsed(record) == {"f": ("int64_list", values)}


def test_floats_keep_their_bits() -> None:
    bits = np.array([0x7F800001, 0x80000000, 0x00000001, 0xFFC00001], "uint32")
    assert bits.tobytes() in fr.encode_example({"f": bits.view("float32")})


def test_keys_may_be_bytes_and_any_text() -> None:
    features = parsed(fr.encode_example({b"raw": 1, "": 2, "\u00e9\0": 3}))
    assert features == {
        "raw": ("int64_list", [1]),
        "": ("int64_list", [2]),
        "\u00e9\0": ("int64_list", [3]),
    }


def test_any_mapping_is_a_row() -> None:
    assert fr.encode_example(MappingProxyType({"a": 1})) == fr.encode_example({"a": 1})


def test_a_row_without_features_is_an_example() -> None:
    assert parsed(fr.encode_example({})) == {}


class Offsets:
    """A fake BytesArray with invalid offsets."""

    def __init__(self, offsets: list[int]) -> None:
        self.data = np.zeros(4, np.uint8)
        self.offsets = np.array(offsets, np.int64)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([], ValueError, r"unknown kind; write np\.array\(\[\], \"int64\"\)"),
        ((), ValueError, r"fastrec\.BytesArray\.from_list\(\[\]\)"),
        ([1, 2.0], ValueError, "cannot mix int and float"),
        ([1.0, 2], ValueError, "cannot mix float and int"),
        (["a", 1], ValueError, "cannot mix string and int"),
        ([np.float32(1), np.int64(1)], ValueError, "cannot mix float and int"),
        (2**63, ValueError, "must be in the range of int64"),
        (-(2**63) - 1, ValueError, "must be in the range of int64"),
        ([1, 2**200], ValueError, "must be in the range of int64"),
        (np.uint64(2**63), ValueError, r"\.view\(\"int64\"\)"),
        (np.array([0, 2**63], "uint64"), ValueError, r"\.view\(\"int64\"\)"),
        (np.zeros((2, 2)), ValueError, r"2 dimensions; .*\.tobytes\(\)"),
        (np.zeros((1, 1, 0), "int8"), ValueError, r"3 dimensions; .*\.tobytes\(\)"),
        ("\ud800", ValueError, "UTF-8"),
        (memoryview(b"abcd")[::2], ValueError, r"\.tobytes\(\)"),
        (np.zeros(2).data, ValueError, r"\.tobytes\(\)"),
        (None, TypeError, "cannot write None; leave it out"),
        (object(), TypeError, "type object"),
        ({"a": 1}, TypeError, "type dict"),
        (1j, TypeError, "type complex"),
        ([[1], [2]], ValueError, "cannot write lists of lists; write their values"),
        ([np.zeros(1)], TypeError, "cannot write a value of type ndarray in a list"),
        ([1, None], TypeError, "type NoneType"),
        (np.complex64(1), TypeError, "dtype complex64"),
        (np.array(["a"]), TypeError, r"\.tolist\(\)"),
        (np.array([b"a"]), TypeError, r"trailing NUL bytes .*\.tolist\(\)"),
        (np.array([1, "a"], object), TypeError, "dtype object"),
        (np.datetime64("2020-01-01"), TypeError, r"\.astype\(\"int64\"\)"),
        (fr.BytesArray.from_list([[b"a"], [b"b"]]), ValueError, "more than one dim"),
        (Offsets([0, 5]), ValueError, "offsets"),
        (Offsets([-1, 2]), ValueError, "offsets"),
        (Offsets([2, 1]), ValueError, "offsets"),
        (Offsets([]), ValueError, "offsets"),
    ],
)
def test_invalid_values_name_the_feature_and_a_hint(
    value: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^feature 'f\u00e9'.*{text}"):
        fr.encode_example({"ok": 1, "f\u00e9": value})


def test_a_float_that_overflows_becomes_inf_with_a_numpy_warning() -> None:
    for value in (1e300, [-1.0, 1e300], np.array([1e300])):
        with pytest.warns(RuntimeWarning, match="feature 'f'") as caught:
            record = fr.encode_example({"f": value})
        assert parsed(record)["f"][1][-1] == np.inf
        assert caught[0].filename == __file__


@pytest.mark.parametrize("row", [[("a", 1)], 3, None, "abc"])
def test_a_row_must_be_a_mapping(row: Any) -> None:
    with pytest.raises(TypeError, match="a row must be a mapping"):
        fr.encode_example(row)


def test_keys_of_other_types_and_equal_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="str or bytes, got int"):
        fr.encode_example({1: 1})
    with pytest.raises(ValueError, match="'a' twice"):
        fr.encode_example({"a": 1, b"a": 2})
    with pytest.raises(ValueError, match="UTF-8"):
        fr.encode_example({"\ud800": 1})


def test_a_value_may_change_the_row_and_write_another_while_it_is_read() -> None:
    row: Row = {}

    class Treacherous:
        offsets = np.array([0, 1], np.int64)

        @property
        def data(self) -> np.ndarray[Any, Any]:
            row.pop("first", None)
            gc.collect()
            assert parsed(fr.encode_example({"x": 1})) == {"x": ("int64_list", [1])}
            return np.array([65], np.uint8)

    row.update({"first": [bytes([66]) * 1000], "second": Treacherous()})
    features = parsed(fr.encode_example(row))
    assert features["first"] == ("bytes_list", [b"B" * 1000])
    assert features["second"] == ("bytes_list", [b"A"])


# --- Files ----------------------------------------------------------------------------


def test_the_file_has_a_frame_per_record(path: Path) -> None:
    rows: list[Row] = [{"i": i, "s": "x" * i} for i in range(100)]
    with fr.Writer(path) as writer:
        assert writer.path == str(path)
        assert not writer.closed
        for row in rows:
            writer.write(row)
        writer.write_record(b"")
        writer.write_record(memoryview(b"raw"))
        assert not path.exists()
        assert writer.n_records == 102
        n_bytes = writer.n_bytes
    records = list(payloads(path.read_bytes()))
    assert records == [*map(fr.encode_example, rows), b"", b"raw"]
    assert path.stat().st_size == n_bytes == writer.n_bytes
    assert list(path.parent.iterdir()) == [path]


def test_records_of_all_sizes_around_the_buffer(path: Path) -> None:
    sizes = [0, 1, 2**20 - 17, 2**20 - 16, 2**20 - 15, 2**20, 3, 9 * 2**20, 5]
    records = [np.random.default_rng(n).bytes(n) for n in sizes]
    with fr.Writer(path) as writer:
        for record in records:
            writer.write_record(record)
    assert list(payloads(path.read_bytes())) == records


def test_a_file_without_records_is_empty(path: Path) -> None:
    fr.Writer(path).close()
    assert path.read_bytes() == b""


def test_the_mode_follows_the_umask(path: Path) -> None:
    previous = os.umask(0o027)
    try:
        fr.Writer(path).close()
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_refused_row_leaves_the_writer_unchanged(path: Path) -> None:
    with fr.Writer(path) as writer:
        writer.write({"a": 1})
        with pytest.raises(ValueError, match="feature 'b'"):
            writer.write({"a": 1, "b": []})
        writer.write({"a": 2})
    assert list(payloads(path.read_bytes())) == [
        fr.encode_example({"a": 1}),
        fr.encode_example({"a": 2}),
    ]


def test_only_bytes_are_records(path: Path) -> None:
    with fr.Writer(path) as writer, pytest.raises(TypeError, match="bytes-like"):
        writer.write_record("text")  # type: ignore[arg-type]


def test_a_closed_writer_refuses_rows_and_may_be_closed_again(path: Path) -> None:
    for close in (fr.Writer.close, fr.Writer.discard):
        writer = fr.Writer(path)
        close(writer)
        assert writer.closed
        with pytest.raises(ValueError, match="is closed"):
            writer.write({"a": 1})
        with pytest.raises(ValueError, match="is closed"):
            writer.write_record(b"a")
        writer.close()
        writer.discard()
        path.unlink(missing_ok=True)


def test_the_repr_counts_records_and_bytes(path: Path) -> None:
    with fr.Writer(path) as writer:
        writer.write_record(b"abc")
        assert (
            repr(writer) == f"<fastrec.Writer {str(path)!r}: 1 records, 19 bytes, open>"
        )
    assert repr(writer).endswith("closed>")


def test_an_exception_in_the_with_block_leaves_no_file(
    tmp_path: Path, path: Path
) -> None:
    def interrupted() -> None:
        with fr.Writer(path) as writer:
            writer.write_record(bytes(2**21))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert_nothing_in(tmp_path)


def test_an_existing_file_is_refused_at_once_and_kept(path: Path) -> None:
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError) as caught:
        fr.Writer(path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"


def test_a_file_created_while_writing_is_kept(path: Path) -> None:
    writer = fr.Writer(path)
    writer.write_record(b"new")
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError) as caught:
        writer.close()
    assert caught.value.filename == str(path)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_a_second_writer_of_the_same_path_is_refused(
    tmp_path: Path, path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(path.name)
    with fr.Writer(path) as first:
        for name in (path, link):
            with pytest.raises(BlockingIOError, match="another writer") as caught:
                fr.Writer(name, overwrite=True)
            assert caught.value.filename == str(name)
        first.write_record(b"first")
    assert list(payloads(path.read_bytes())) == [b"first"]
    with fr.Writer(path, overwrite=True) as second:
        second.write_record(b"second")
    assert list(payloads(path.read_bytes())) == [b"second"]


def test_overwriting_replaces_the_old_file_at_close(path: Path) -> None:
    path.write_bytes(b"old")
    with fr.Writer(path, overwrite=True) as writer:
        writer.write_record(b"new")
        assert path.read_bytes() == b"old"
    assert list(payloads(path.read_bytes())) == [b"new"]


def test_overwriting_follows_a_link_to_the_file(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(path.name)
    with fr.Writer(link, overwrite=True) as writer:
        writer.write_record(b"new")
    assert link.is_symlink()
    assert list(payloads(path.read_bytes())) == [b"new"]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        fr.Writer(tmp_path, overwrite=True)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="Invalid argument") as caught:
        fr.Writer(fifo, overwrite=True)
    assert caught.value.filename == str(fifo)
    assert fifo.is_fifo()


@pytest.mark.parametrize(
    ("name", "error", "number"),
    [
        ("missing/a.tfrecord", FileNotFoundError, errno.ENOENT),
        ("file/a.tfrecord", NotADirectoryError, errno.ENOTDIR),
        ("x" * 300, OSError, errno.ENAMETOOLONG),
    ],
)
def test_invalid_paths_raise_the_error_of_the_system(
    tmp_path: Path, name: str, error: type[OSError], number: int
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(error) as caught:
        fr.Writer(tmp_path / name)
    assert caught.value.errno == number
    assert caught.value.filename == str(tmp_path / name)


def test_names_may_have_any_bytes_up_to_the_limit(tmp_path: Path) -> None:
    for name in ("\udcff.tfrecord", "\u00e9", "x" * 255):
        with fr.Writer(tmp_path / name) as writer:
            assert writer.path == str(tmp_path / name)
        assert (tmp_path / name).exists()
    with pytest.raises(ValueError, match="null"):
        fr.Writer("a\0b")


def test_a_relative_path_ignores_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with fr.Writer("a.tfrecord") as writer:
        assert writer.path == "a.tfrecord"
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert (tmp_path / "a.tfrecord").exists()


def test_an_unclosed_writer_warns_and_leaves_no_file(
    tmp_path: Path, path: Path
) -> None:
    def forget() -> None:
        fr.Writer(path).write_record(b"lost")
        gc.collect()

    with pytest.warns(ResourceWarning, match="1 records are lost"):
        forget()
    assert_nothing_in(tmp_path)


def test_closed_and_failed_writers_do_not_warn(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fr.Writer(path).close()
        with pytest.raises(FileExistsError):
            fr.Writer(path)
        gc.collect()


def test_several_threads_share_a_writer(path: Path) -> None:
    n_threads, n_rows, failures = 4, 3000, []

    def write(writer: fr.Writer, thread: int) -> None:
        try:
            for i in range(n_rows):
                writer.write({"thread": thread, "i": i, "pad": bytes(700)})
                assert writer.n_records > i
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    with fr.Writer(path) as writer:
        threads = [
            threading.Thread(target=write, args=(writer, t)) for t in range(n_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    seen: dict[int, list[int]] = {}
    for record in payloads(path.read_bytes()):
        features = parsed(record)
        seen.setdefault(features["thread"][1][0], []).extend(features["i"][1])
    assert seen == {t: list(range(n_rows)) for t in range(n_threads)}


# --- Processes that fail --------------------------------------------------------------


def test_kill_9_leaves_only_a_temporary_file_of_complete_records(
    tmp_path: Path, path: Path
) -> None:
    run_python(
        """
        import os, signal, sys
        import fastrec as fr
        writer = fr.Writer(sys.argv[1], num_threads=0)
        for i in range(3000):
            writer.write_record(bytes(1000))
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
        status=-signal.SIGKILL,
    )
    (left,) = tmp_path.glob(".*.tmp")
    assert left.name.startswith(".data.tfrecord.")
    assert not path.exists()
    data = left.read_bytes()
    n_whole = len(data) // 1016
    assert n_whole >= 2000
    assert list(payloads(data[: n_whole * 1016])) == [bytes(1000)] * n_whole


def test_a_full_disk_names_the_path_and_leaves_no_file(
    tmp_path: Path, path: Path
) -> None:
    run_python(
        """
        import errno, resource, signal, sys
        import fastrec as fr
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        path = sys.argv[1]

        def refused(action):
            try:
                action()
            except OSError as error:
                return error.errno == errno.EFBIG and error.filename == path
            return False

        # A write hits the limit, and all later calls fail in the same way.
        writer = fr.Writer(path, num_threads=0)
        assert refused(lambda: [writer.write_record(bytes(1000)) for _ in range(5000)])
        assert writer.closed
        assert refused(lambda: writer.write({"a": 1}))
        assert refused(writer.close)
        writer.discard()

        # Threads hit the limit while others continue, and a later call reports it.
        writer = fr.Writer(path, num_threads=2)
        assert refused(lambda: [writer.write_record(bytes(1000)) for _ in range(10**6)])
        assert refused(writer.close)

        # Only close() hits the limit.
        writer = fr.Writer(path)
        writer.write_record(bytes(1_100_000))
        writer.write_record(bytes(500_000))
        assert refused(writer.close)

        # A `with` block suppresses the error, and __exit__ reports it.
        def hide():
            with fr.Writer(path, num_threads=0) as writer:
                assert refused(lambda: writer.write_record(bytes(2_000_000)))
        assert refused(hide)
        """,
        path,
    )
    assert_nothing_in(tmp_path)


def test_a_fork_leaves_the_file_intact(path: Path) -> None:
    run_python(
        """
        import os, sys, warnings
        import fastrec as fr
        warnings.simplefilter("ignore")
        writer = fr.Writer(sys.argv[1])
        writer.write_record(b"parent")
        if os.fork() == 0:
            try:
                writer.close()
            except ValueError as error:
                assert "in a forked process" in str(error)
                del writer
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        writer.close()
        """,
        path,
    )
    assert list(payloads(path.read_bytes())) == [b"parent"]


def test_the_interpreter_may_exit_with_an_open_writer(
    tmp_path: Path, path: Path
) -> None:
    run_python(
        """
        import sys
        import fastrec as fr
        writer = fr.Writer(sys.argv[1])
        writer.write_record(b"lost")
        """,
        path,
    )
    assert_nothing_in(tmp_path)


# encode_example with specs, and checksums.


def test_specs_determine_how_a_row_is_encoded(path: Path) -> None:
    features = {
        "image": fr.Raw((2, 3), "uint8"),
        "box": fr.FixedLen((2, 2), "float32"),
        "tags": fr.VarLen("bytes"),
        "tensor": fr.SerializedTensor((2,), "int16", key="t"),
    }
    row = {
        "image": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "box": [[1, 2], [3, 4]],
        "tags": [],
        "tensor": np.array([1, -1], np.int16),
        "other": 3,
    }
    with fr.Writer(path, features=features) as writer:
        writer.write(row)
    [wanted] = fr.read_records(path)
    for specs in (features, fr.Schema(features)):
        assert fr.encode_example(row, features=specs) == wanted
    back = tf_io.parse_single_example(wanted, features)
    assert back["image"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["box"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match="image"):
        fr.encode_example(
            {**row, "image": np.zeros((3, 2), np.uint8)}, features=features
        )
    with pytest.raises(fr.SchemaError):
        fr.encode_example(row, features=3)  # type: ignore[arg-type]


def test_masked_crc32c_equals_the_stored_checksum(path: Path) -> None:
    record = b"any bytes"
    with fr.Writer(path) as writer:
        writer.write_record(record)
    frame = path.read_bytes()
    head, tail = frame[8:12], frame[-4:]
    assert tf_io.masked_crc32c(frame[:8]) == int.from_bytes(head, "little")
    held_as: list[Any] = [record, bytearray(record), np.frombuffer(record, np.uint8)]
    for held in held_as:
        assert tf_io.masked_crc32c(held) == int.from_bytes(tail, "little")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("HTTPS://host/a", "cannot write 'HTTPS://host/a': HTTP servers are read-only"),
        ("nope://host/a-{shard}", "unknown scheme; known schemes are s3://"),
        ("file://host/a", "a file:// URL must name a local file, such as file:///a"),
    ],
)
def test_urls_that_cannot_be_written_are_refused(path: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        fr.Writer(path)
    with pytest.raises(ValueError, match=re.escape(reason)):
        fr.write(path, {"x": [1]})


def test_a_file_url_is_written_to_its_path(tmp_path: Path) -> None:
    url = (tmp_path / "a b-{shard}.tfrecord").as_uri()
    assert "%" in url
    fr.write(url, {"x": [1, 2]}, max_shard_records=1)
    names = sorted(path.name for path in tmp_path.glob("*.tfrecord"))
    assert names == ["a b-0.tfrecord", "a b-1.tfrecord"]
    assert [row["x"] for row in fr.open(url.replace("%7Bshard%7D", "*")).head()] == [
        1,
        2,
    ]
