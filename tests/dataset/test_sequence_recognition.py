"""SequenceExamples that are read as Examples.

Goal
    Feature lists are never dropped silently.
Method
    SequenceExamples, and Examples with an unknown field 2, are read with ``features=``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fastrec as fr
from fastrec.compat import tf_io

SEQUENCE = fr.encode_sequence_example(
    context={"id": 7}, feature_lists={"frames": [[1.0], [2.0]], "words": [[b"a"]]}
)
EXAMPLE = fr.encode_example({"id": 7})
FEATURES = {"id": fr.FixedLen((), "int64", default=-1)}


def field_2(content: bytes) -> bytes:
    return b"\x12" + bytes([len(content)]) + content


@pytest.mark.parametrize(
    "read",
    [
        lambda record: fr.parse_example([EXAMPLE, EXAMPLE, record], FEATURES),
        lambda record: tf_io.parse_single_example(record, FEATURES),
        lambda record: tf_io.parse_single_example(
            record, {"frames": fr.FixedLen((), "float32")}
        ),
        fr.decode_example,
    ],
)
@pytest.mark.parametrize("context", [{"id": 7}, {}])
def test_a_sequence_example_in_memory_is_refused(
    read: Callable[[bytes], object], context: dict[str, int]
) -> None:
    record = fr.encode_sequence_example(
        context=context, feature_lists={"frames": [[1.0]]}
    )
    with pytest.raises(
        fr.SchemaError, match=r"SequenceExample.*decode_sequence_example"
    ):
        read(record)


@pytest.mark.parametrize("on_error", ["raise", "skip", "mask"])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_file_of_sequence_examples_is_refused(
    tmp_path: Path, on_error: str, compression: str | None
) -> None:
    path = tmp_path / "sequences"
    with fr.Writer(path, compression=compression) as writer:
        for _ in range(20):
            writer.write_record(SEQUENCE)
    ds = fr.open(path, features=FEATURES, on_error=on_error)  # type: ignore[arg-type]
    match = r"SequenceExample.*context_features= and sequence_features=.*record 0"
    with pytest.raises(fr.SchemaError, match=match):
        next(iter(ds.loader(8)))
    both = fr.open(path, context_features=FEATURES)
    assert next(iter(both.loader(8)))["id"].tolist() == [7] * 8


@pytest.mark.parametrize(
    "unknown",
    [
        b"",
        b"text",
        b"\x0a",
        b"\x0a\x02\x0a\x00",  # a key, and nothing under it
        b"\x0a\x05\x0a\x01a\x12\x00",  # a list without steps
        b"\x0a\x07\x0a\x01a\x12\x02\x0a\x00",  # a step without a kind
        b"\x0a\x09\x0a\x01a\x12\x04\x0a\x02\x22\x00",  # a kind that does not exist
        b"\x08\x01",
    ],
)
def test_an_example_with_an_unknown_field_2_is_read(unknown: bytes) -> None:
    record = EXAMPLE + field_2(unknown)
    assert tf_io.parse_single_example(record, FEATURES) == {"id": 7}
    assert fr.parse_example([record] * 20, FEATURES)["id"].tolist() == [7] * 20
    assert fr.decode_example(record)["id"].tolist() == [7]
