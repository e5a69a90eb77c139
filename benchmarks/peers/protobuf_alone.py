"""Peer: google.protobuf (upb) alone, with the framing of the files in Python.

What a user writes who has neither TensorFlow nor a package for it.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from peers.reader import Reader, Setup
from peers.rows import column, stack
from truth import Columns
from workloads import Feature

__all__ = ["PeerReader", "batches"]

Field = descriptor_pb2.FieldDescriptorProto
LISTS = {"int64": "int64_list", "float32": "float_list"}


@cache
def example_class() -> Any:
    """tensorflow/core/example/{example,feature}.proto, as a class of messages."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="bench", syntax="proto3"
    )

    def add(message: Any, name: str, number: int, kind: Any, **rest: Any) -> None:
        label = rest.pop("label", Field.LABEL_OPTIONAL)
        message.field.add(name=name, number=number, type=kind, label=label, **rest)

    many, inner = Field.LABEL_REPEATED, Field.TYPE_MESSAGE
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    kinds = {
        "bytes": Field.TYPE_BYTES,
        "float": Field.TYPE_FLOAT,
        "int64": Field.TYPE_INT64,
    }
    for number, (name, kind) in enumerate(kinds.items(), 1):
        values = file.message_type.add(name=f"{name}List")
        add(values, "value", 1, kind, label=many)
        type_name = f".bench.{name}List"
        add(feature, f"{name}_list", number, inner, type_name=type_name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, Field.TYPE_STRING)
    add(entry, "value", 2, inner, type_name=".bench.Feature")
    type_name = ".bench.Features.FeatureEntry"
    add(features, "feature", 1, inner, label=many, type_name=type_name)
    example = file.message_type.add(name="Example")
    add(example, "features", 1, inner, type_name=".bench.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Example"))


def records(path: str, *, is_gzip: bool) -> Iterator[bytes]:
    """Payloads of a file, read whole; their checksums are not looked at."""
    data = Path(path).read_bytes()
    if is_gzip:
        data = gzip.decompress(data)
    begin = 0
    while begin < len(data):
        end = begin + 12 + int.from_bytes(data[begin : begin + 8], "little")
        yield data[begin + 12 : end]
        begin = end + 4


def batches(
    files: list[str], features: tuple[Feature, ...], size: int, *, is_gzip: bool
) -> Iterator[dict[str, Any]]:
    """Batches of `size` records, parsed one by one."""
    parse = example_class().FromString
    lists = [(f, f.name, LISTS.get(f.dtype, "bytes_list")) for f in features]
    payloads = (p for path in files for p in records(path, is_gzip=is_gzip))
    while chunk := list(islice(payloads, size)):
        maps = [parse(payload).features.feature for payload in chunk]
        yield {
            name: stack(f, [getattr(m[name], values).value for m in maps])
            for f, name, values in lists
        }


class PeerReader(Reader):
    """Parses record by record, on one thread."""

    checks = "none"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(
            threads="reads on one thread only",
            shuffled="has no order but the files'",
            sequence="its SequenceExamples are not set up here",
        )
        super().__init__(setup)
        # Tens of thousands of records a second: the first file is enough.
        self.files = self.files[:1]
        self.form = "Example.FromString, stacked; first file only"
        self.versions = {"protobuf": version("protobuf")}

    def epoch(self) -> Iterator[dict[str, Any]]:
        """Batches of stacked records."""
        return batches(
            self.files,
            self.workload.features,
            self.batch_size,
            is_gzip=self.workload.is_gzip,
        )

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        return {f.name: column(f, batch[f.name]) for f in self.workload.features}
