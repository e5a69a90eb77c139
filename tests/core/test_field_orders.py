"""Records of writers that differ in the order of their fields.

Goal
    Batches are the same whatever order a writer has for the features of a record: a new
    one for every record (protobuf in C++), one for each process (upb), or always the same;
    by `parse_example` and by the loader.
Method
    The same rows written plainly, with the entries of every record shuffled, and by
    protobuf's Python in processes with different hash seeds.
"""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastrec as fr
from columns import Write, snapshot
from oracle import example, tfrecord_file

pytest.importorskip("google.protobuf")

from oracle_protobuf import features_by_protobuf, needs_upb

N_RECORDS = 300
SPEC: Any = {
    "id": fr.FixedLen((), "int64"),
    "pair": fr.FixedLen((2,), "float32"),
    "maybe": fr.FixedLen((), "int64", default=-1),
    "tags": fr.VarLen("bytes"),
    "items": fr.Ragged("int64", [fr.Ragged.RowLengths("lengths")], key="values"),
    "point": fr.Sparse(["x", "y"], "weight", "float32", (9, 9)),
    "pixels": fr.Raw((2, 2), "uint8"),
    "stack": fr.Stack([f"s{i}" for i in range(12)], "float32", default=0.5),
}

# Prints pickled records, each made by protobuf of a dict of features.
WRITER = """
import pickle, sys
from fastrec.compat import tf_train
written = []
for features in pickle.load(sys.stdin.buffer):
    message = tf_train.Example()
    for key, (kind, values) in features.items():
        feature = message.features.feature[key.decode()]
        getattr(feature, kind + "_list").value.extend(values)
    written.append(message.SerializeToString())
pickle.dump(written, sys.stdout.buffer)
"""


def rows() -> list[dict[bytes, Any]]:
    rng = random.Random(5)
    found = []
    for i in range(N_RECORDS):
        n = rng.randrange(4)
        row: dict[bytes, Any] = {
            b"id": ("int64", [i]),
            b"pair": ("float", [i / 2, -i / 4]),
            b"tags": ("bytes", [rng.randbytes(3) for _ in range(n)]),
            b"values": ("int64", [rng.randrange(99) for _ in range(2 * n)]),
            b"lengths": ("int64", [n, n]),
            b"x": ("int64", list(range(n))),
            b"y": ("int64", list(range(n))),
            b"weight": ("float", [0.25] * n),
            b"pixels": ("bytes", [rng.randbytes(4)]),
            b"else": ("bytes", [b"nobody asks for it"]),
        }
        for slot in range(12):
            if rng.random() < 0.8:
                row[f"s{slot}".encode()] = "float", [slot + i / 8]
        if rng.random() < 0.5:
            row[b"maybe"] = "int64", [i]
        found.append(row)
    return found


def shuffled(rows: list[dict[bytes, Any]], seed: int) -> list[bytes]:
    """A new order for every record, as a hash map that is seeded anew has."""
    rng = random.Random(seed)
    return [example(dict(rng.sample(list(row.items()), len(row)))) for row in rows]


def by_upb(rows: list[dict[bytes, Any]], hash_seed: int) -> list[bytes]:
    """As protobuf's Python writes them, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", WRITER],
        input=pickle.dumps(rows),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": str(hash_seed)},
    )
    found: list[bytes] = pickle.loads(ran.stdout)
    return found


def same(a: Any, b: Any) -> bool:
    """Whether two batches are equal, whatever their columns are."""
    if list(a) != list(b):
        return False
    return all(repr(listed(a[name])) == repr(listed(b[name])) for name in a)


def listed(column: Any) -> Any:
    if isinstance(column, fr.RaggedArray):
        return column.tolist()
    if isinstance(column, fr.SparseArray):
        return column.indices.tolist(), column.values.tolist(), column.dense_shape
    return column.tolist()


def writers() -> dict[str, Callable[[list[dict[bytes, Any]]], list[bytes]]]:
    found: dict[str, Callable[[list[dict[bytes, Any]]], list[bytes]]] = {
        f"upb {seed}": lambda rows, seed=seed: by_upb(rows, seed)  # type: ignore[misc]
        for seed in (0, 1, 2)
    }
    for seed in (0, 1):
        found[f"cpp {seed}"] = lambda rows, seed=seed: shuffled(rows, seed)  # type: ignore[misc]
    return found


WRITERS = writers()


@pytest.mark.parametrize(
    "writer",
    [
        pytest.param(name, marks=needs_upb if name.startswith("upb") else ())
        for name in WRITERS
    ],
)
def test_batches_do_not_depend_on_the_order_of_fields(writer: str) -> None:
    plain = [example(row) for row in rows()]
    records = WRITERS[writer](rows())
    for record, row in zip(records[:20], rows(), strict=False):
        assert features_by_protobuf(record).keys() == row.keys()
    assert records != plain
    wanted = fr.parse_example(plain, SPEC)
    assert same(fr.parse_example(records, SPEC), wanted)
    for i in (0, 7, N_RECORDS - 1):
        assert same(
            fr.parse_example(records[i : i + 1], SPEC),
            fr.parse_example(plain[i : i + 1], SPEC),
        )


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("writer", ["upb 0", "cpp 0"])
def test_loaders_do_not_depend_on_it_either(
    write: Write, writer: str, threads: int
) -> None:
    def batches(records: list[bytes]) -> list[Any]:
        ds = fr.open(write(tfrecord_file(records)), features=SPEC)
        return list(ds.loader(32, shuffle=True, seed=3, num_threads=threads))

    wanted = batches([example(row) for row in rows()])
    got = batches(WRITERS[writer](rows()))
    assert len(got) == len(wanted) == -(-N_RECORDS // 32)
    assert all(same(a, b) for a, b in zip(got, wanted, strict=True))
    ids = np.concatenate([batch["id"] for batch in got])
    assert sorted(ids.tolist()) == list(range(N_RECORDS))


def test_files_of_several_writers_are_one_data_set(write: Write) -> None:
    spec = {name: SPEC[name] for name in ("id", "pair", "maybe", "tags", "stack")}
    plain = write(tfrecord_file([example(row) for row in rows()]))
    mixed = [WRITERS[name](rows())[i::5] for i, name in enumerate(WRITERS)]
    records = [record for of_writer in mixed for record in of_writer]
    files = [write(tfrecord_file(of_writer)) for of_writer in mixed]
    assert len(records) == N_RECORDS
    order = [i for start in range(5) for i in range(start, N_RECORDS, 5)]
    wanted = fr.open(plain, features=spec)[order]
    got = fr.open([str(file) for file in files], features=spec)[0:N_RECORDS]
    assert snapshot([got]) == snapshot([wanted])
