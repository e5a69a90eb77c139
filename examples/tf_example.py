"""The guide to tf.train.Example without TensorFlow: four features, 10,000 records.

usage: python examples/tf_example.py

Writes and reads records of a bool, an int, a string and a float, then a serialized
tensor, and then a record by hand. Needs only fastrec and NumPy.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

import fastrec as fr
from fastrec.compat import tf_io

N_RECORDS = 10_000
STRINGS = np.array(["cat", "dog", "chicken", "horse", "goat"])


def main() -> None:
    """Run the steps of the guide."""
    # One value of each kind. What a value is decides the kind of its feature.
    rng = np.random.default_rng(0)
    feature1 = rng.integers(0, 5, N_RECORDS)
    columns = {
        "feature0": rng.random(N_RECORDS) < 0.5,  # bool -> int64
        "feature1": feature1,  # int -> int64
        "feature2": STRINGS[feature1].tolist(),  # str -> bytes
        "feature3": rng.normal(size=N_RECORDS),  # float -> float (32 bits)
    }
    fr.write("test.tfrecord", columns, overwrite=True)

    # Without a description: what is in the file?
    ds = fr.open("test.tfrecord")
    print(f"{len(ds):,} records")
    print(ds.schema)
    print(ds[0])

    # With the guide's description; a record without a feature gets its default.
    ds = fr.open(
        "test.tfrecord",
        features={
            "feature0": fr.FixedLen((), "int64", default=0),
            "feature1": fr.FixedLen((), "int64", default=0),
            "feature2": fr.FixedLen((), "bytes", default=b""),
            "feature3": fr.FixedLen((), "float32", default=0.0),
        },
    )
    for name, values in ds[:].items():
        assert np.array_equal(values.tolist(), np.asarray(as_read(columns[name])))
    print(f"{len(columns)} features of {len(ds):,} records are what was written")

    # Arrays of any shape: as bytes that name dtype and shape.
    tensor = np.arange(6, dtype="float64").reshape(2, 3)
    record = fr.encode_example({"tensor": tf_io.serialize_tensor(tensor)})
    spec = {"tensor": fr.SerializedTensor((2, 3), "float64")}
    print(tf_io.parse_single_example(record, spec)["tensor"])

    # The format by hand: length, its checksum, the record, its checksum.
    length = struct.pack("<Q", len(record))
    with Path("by-hand.tfrecord").open("wb") as file:
        file.write(length + struct.pack("<I", tf_io.masked_crc32c(length)))
        file.write(record + struct.pack("<I", tf_io.masked_crc32c(record)))
    assert list(fr.read_records("by-hand.tfrecord")) == [record]
    print(f"a frame by hand: {Path('by-hand.tfrecord').stat().st_size} bytes")


def as_read(column: object) -> object:
    """Return a column with the types that the format has."""
    if isinstance(column, list):
        return [text.encode() for text in column]
    array = np.asarray(column)
    return array.astype("float32" if array.dtype.kind == "f" else "int64")


if __name__ == "__main__":
    main()
