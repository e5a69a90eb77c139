"""Measure single rows: microseconds of CPU time a row, compared with protobuf.

protobuf (upb) parses a serialized tf.train.Example with `Example.FromString` and makes a
dict of lists of it, from different bytes in memory for each row. So do `tf_io.parse_single_example`, with specs,
and `fr.decode_example`, without. `ds[i]` and iteration also read the record from a file
and verify both checksums, as do Grain and torch through fastrec's adapters, if they are
installed. All of them return the same values, which is checked first; they take turns, and
ratios are those of one round.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from environment import describe
from fastrec.compat import tf_io
from peers.protobuf_alone import example_class

__all__: list[str] = []

MAX_BYTES = 64 << 20  # of the records of a round

Read = Callable[[int], Mapping[Any, Any]]

INT, FLOAT, BYTES = (fr.FixedLen((), kind) for kind in ("int64", "float32", "bytes"))


def cases(rng: np.random.Generator) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return the values and specs of each kind of record."""
    return {
        "3 scalars": (
            {"id": 12345, "score": 0.5, "name": b"a name"},
            {"id": INT, "score": FLOAT, "name": BYTES},
        ),
        "40 scalars": (
            {f"f{i:02}": 1000 * i if i % 2 else i / 2 for i in range(40)},
            {f"f{i:02}": INT if i % 2 else FLOAT for i in range(40)},
        ),
        "image, 3 KB": (
            {"image": rng.bytes(3_000), "label": 7},
            {"image": BYTES, "label": INT},
        ),
        "image, 110 KB": (
            {"image": rng.bytes(110_000), "label": 7},
            {"image": BYTES, "label": INT},
        ),
        "ragged lists": (
            {
                "ids": rng.integers(0, 50_000, 50),
                "weights": rng.random(20, np.float32),
                "words": [b"several", b"words", b""],
            },
            {
                "ids": fr.VarLen("int64"),
                "weights": fr.VarLen("float32"),
                "words": fr.VarLen("bytes"),
            },
        ),
        "tokens, 2 x 1024": (
            {name: rng.integers(0, 32_000, 1024) for name in ("tokens", "targets")},
            {name: fr.FixedLen((1024,), "int64") for name in ("tokens", "targets")},
        ),
    }


def readers(
    path: Path, records: list[bytes], features: dict[str, Any]
) -> dict[str, Read]:
    """Return functions from a record number to a row."""
    Example = example_class()

    def protobuf(i: int) -> Mapping[str, Any]:
        message = Example.FromString(records[i])
        return {
            name: list(getattr(feature, feature.WhichOneof("kind")).value)
            for name, feature in message.features.feature.items()
        }

    ds = fr.open(path, features=features)
    rows = itertools.chain.from_iterable(itertools.repeat(ds))
    found: dict[str, Read] = {
        "protobuf": protobuf,
        "parse_single_example": lambda i: tf_io.parse_single_example(
            records[i], features
        ),
        "decode_example": lambda i: fr.decode_example(records[i]),
        "ds[i]": ds.__getitem__,
        "for row in ds": lambda _: next(rows),
        "ds.records[i]": lambda i: {"record": ds.records[i]},
    }
    if importlib.util.find_spec("grain"):
        found["Grain: source[i]"] = fr.grain.DataSource(ds).__getitem__
    if importlib.util.find_spec("torch"):
        found["torch: dataset[i]"] = fr.torch.Dataset(ds).__getitem__
    return found


def check(found: dict[str, Read], record: bytes) -> None:
    """Exit unless all readers return the same values."""
    wanted = found["protobuf"](0)
    for name, read in found.items():
        for number in (0, 1, 2):  # rows are read in another way from the second one on
            row = read(number)
            if name == "ds.records[i]":
                is_same = row == {"record": record}
            else:
                is_same = sorted(row) == sorted(wanted) and all(
                    as_list(value) == wanted[key] for key, value in row.items()
                )
            if not is_same:
                sys.exit(f"{name} returns other values")


def as_list(value: Any) -> list[Any]:
    if isinstance(value, (bytes, list)):
        return [value] if isinstance(value, bytes) else value
    return list(value.tolist() if value.ndim else [value.item()])


def seconds_of(read: Read, n: int) -> float:
    begin = time.process_time()
    for i in range(n):
        read(i)
    return (time.process_time() - begin) / n


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000, help="rows in a round")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--kinds", nargs="*", help="the kinds of records to measure")
    args = parser.parse_args()
    print(describe())
    print("| record | reader | us a row | times as fast as protobuf | spread |")
    print("| --- | --- | ---: | ---: | ---: |")
    for kind, (values, features) in cases(np.random.default_rng(0)).items():
        if args.kinds and kind not in args.kinds:
            continue
        record = fr.encode_example(values)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.tfrecord"
            n = min(args.rows, MAX_BYTES // len(record))
            with fr.Writer(path) as writer:
                for _ in range(n):
                    writer.write(values)
            found = readers(path, list(fr.open(path).records), features)
            check(found, record)
            times: dict[str, list[float]] = {name: [] for name in found}
            gc.disable()  # as timeit does
            for _ in range(args.repeat):
                for name, read in found.items():
                    times[name].append(seconds_of(read, n))
            gc.enable()
        for name, seconds in times.items():
            pairs = zip(times["protobuf"], seconds, strict=True)
            ratios = [theirs / own for theirs, own in pairs]
            middle = statistics.median(ratios)
            print(
                f"| {kind} | {name} | {statistics.median(seconds) * 1e6:.2f} "
                f"| {middle:.2f} | {(max(ratios) - min(ratios)) / middle:.0%} |"
            )


if __name__ == "__main__":
    main()
