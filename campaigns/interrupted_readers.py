"""Epochs of all kinds of loaders that signals interrupt; see interrupts.py.

After each signal, the loop continues. In the end, every batch must have come once, in
order, with the values that a loader without threads and signals delivers.
"""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import fastrec as fr
from campaigns.signals import Signals
from columns import Untyped
from oracle import example, tfrecord_file
from oracle_example import delimited, sequence, varint_field

# The adapters whose framework is installed. Missing here are those of Ray, which reads
# in other processes, and of TensorFlow, which reads in its own threads: signals reach
# neither.
_MODULES = {
    "torch": ["torch"],
    "jax": ["jax"],
    "keras": ["keras", "torch"],
    "grain": ["grain"],
    "polars": ["polars"],
}
ADAPTERS = [name for name, modules in _MODULES.items() if all(map(find_spec, modules))]

N_FILES, N_PER_FILE = 3, 16
N_RECORDS = N_FILES * N_PER_FILE
_VALUES = fr.Ragged.RowLengths("lengths")
_HAS_IMAGES = find_spec("cv2") is not None

# A column of every kind. Arrays of most kinds are made by Python code, in which a
# signal may raise.
SPEC: dict[str, Untyped] = {
    "n": fr.FixedLen((), "int64"),
    "name": fr.FixedLen((), "bytes"),
    "ids": fr.VarLen("int64"),
    "words": fr.VarLen("bytes"),
    "padded": fr.FixedLenSequence((), "int64", key="ids", lengths="n_ids"),
    "rows": fr.Ragged("int64", [_VALUES], key="values"),
    "sparse": fr.Sparse("at", "values", "int64", 8),
    "stack": fr.Stack(["n", "n"], dtype="int64"),
    "raw": fr.Raw((), "int64"),
    "tensor": fr.SerializedTensor((2,), "int64"),
}
if _HAS_IMAGES:
    SPEC["image"] = fr.Image((2, 2))
NUMBERS = {"n": SPEC["n"]}
STEPS = {"step": fr.VarLen("int64")}


def adapter_of(name: str) -> str | None:
    """Return the adapter that the name of a way or call begins with."""
    first, _, _ = name.partition("_")
    return first if first in _MODULES else None


def record(n: int) -> bytes:
    k = n % 4
    return example(
        {
            b"n": ("int64", [n]),
            b"name": ("bytes", [b"%d" % n]),
            b"ids": ("int64", range(n, n + k)),
            b"words": ("bytes", [b"w" * k, b"%d" % n][: n % 3]),
            b"lengths": ("int64", [k, 1]),
            b"values": ("int64", range(n, n + k + 1)),
            b"at": ("int64", range(k + 1)),
            b"raw": ("bytes", [struct.pack("<q", n)]),
            b"tensor": ("bytes", [_tensor(n)]),
            b"image": ("bytes", [_png(n % 256)]),
        }
    )


def _tensor(n: int) -> bytes:
    """Return a TensorProto of the int64 array [n, n]."""
    shape = delimited(2, varint_field(1, 2))
    return (
        varint_field(1, 9)
        + delimited(2, shape)
        + delimited(4, struct.pack("<2q", n, n))
    )


def _png(level: int) -> bytes:
    """Return a gray image of 2 x 2 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + checksum

    pixels = zlib.compress(bytes([0, level, level] * 2))
    header = struct.pack(">2I5B", 2, 2, 8, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _steps(n: int) -> bytes:
    lists: dict[bytes, Untyped] = {
        b"step": [("int64", range(i + 1)) for i in range(n % 4)]
    }
    return sequence({b"n": ("int64", [n])}, lists)


def check_values(batch: Untyped) -> None:
    """Compare every column with the values that follow from its record number."""
    n = batch["n"]
    k = n % 4
    np.testing.assert_array_equal(batch["stack"], np.stack([n, n], 1))
    np.testing.assert_array_equal(batch["tensor"], np.stack([n, n], 1))
    np.testing.assert_array_equal(batch["raw"], n)
    assert batch["name"].tolist() == [b"%d" % i for i in n]
    assert batch["words"].tolist() == [
        [b"w" * (i % 4), b"%d" % i][: i % 3] for i in n.tolist()
    ]
    np.testing.assert_array_equal(batch["ids"].lengths, k)
    np.testing.assert_array_equal(batch["n_ids"], k)
    places = np.arange(k.max(initial=0))
    ids = np.where(places < k[:, None], n[:, None] + places, 0)
    np.testing.assert_array_equal(batch["padded"], ids)
    np.testing.assert_array_equal(batch["ids"].to_padded(), ids)
    rows = batch["rows"]
    np.testing.assert_array_equal(rows.lengths, 2)
    lengths = np.stack([k, np.ones_like(k)], 1).ravel()
    np.testing.assert_array_equal(rows.values.lengths, lengths)
    values = np.concatenate([np.arange(i, i + i % 4 + 1) for i in n.tolist()])
    np.testing.assert_array_equal(rows.values.values, values)
    np.testing.assert_array_equal(batch["sparse"].values, values)
    np.testing.assert_array_equal(
        batch["sparse"].indices[:, 0], np.repeat(np.arange(len(n)), k + 1)
    )
    if _HAS_IMAGES:
        np.testing.assert_array_equal(
            batch["image"], np.broadcast_to(n[:, None, None, None], (len(n), 2, 2, 3))
        )


def plain(value: Untyped) -> Untyped:
    """Return a batch, or a part of one, as values that compare bit for bit."""
    if isinstance(value, dict):
        return [(name, plain(column)) for name, column in value.items()]
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, fr.BytesArray):
        return value.tolist()
    if isinstance(value, fr.RaggedArray):
        return plain(value.row_splits), plain(value.values)
    if isinstance(value, fr.SparseArray):
        return plain(value.indices), plain(value.values)
    if getattr(value, "is_sparse", False):  # a tensor of torch
        return plain(value._indices()), plain(value._values())
    if hasattr(value, "offsets"):
        return plain(value.offsets), plain(value.values)
    if hasattr(value, "__arrow_c_array__"):
        import pyarrow as pa

        return pa.record_batch(value).to_pydict()
    return plain(np.asarray(value))


@dataclass(frozen=True)
class Data:
    """The files that all cases read; `url` is that of a server of the same files."""

    folder: Path
    url: str

    def files(self, kind: str) -> list[str]:
        root = self.url if kind.startswith("remote") else str(self.folder)
        kind = kind.removeprefix("remote_")
        return [f"{root}/{kind}/{i}.tfrecord" for i in range(N_FILES)]

    @staticmethod
    def contents() -> dict[str, bytes]:
        """Return the files by their path."""
        found: dict[str, bytes] = {}
        for i in range(N_FILES):
            numbers = range(i * N_PER_FILE, (i + 1) * N_PER_FILE)
            data = tfrecord_file(map(record, numbers))
            steps = tfrecord_file(map(_steps, numbers))
            middle = len(data) // 2
            damaged = data[:middle] + b"\0\0\0\0" + data[middle + 4 :]
            found |= {
                f"plain/{i}.tfrecord": data,
                f"gzip/{i}.tfrecord": gzip.compress(data, mtime=0),
                f"steps/{i}.tfrecord": steps,
                f"damaged/{i}.tfrecord": damaged,
            }
        return found

    def open(self, kind: str = "plain", **options: Untyped) -> Untyped:
        options.setdefault("features", SPEC)
        options.setdefault("index_dir", self.folder / "index")
        return fr.open(self.files(kind), **options)


def is_even(batch: Untyped) -> Untyped:
    return batch["n"] % 2 == 0


def _mixed(data: Data) -> Untyped:
    parts = {"a": (data.open(), 2), "b": (data.open().select(range(9)), 1)}
    return fr.mix(parts)


def _skipping(data: Data) -> Untyped:
    return data.open("damaged", on_error="resync")


SOURCES: dict[str, Callable[[Data], Untyped]] = {
    "all": lambda data: data.open(),
    "numbers": lambda data: data.open(features=NUMBERS),
    "pread": lambda data: data.open(io="pread"),
    "gzip": lambda data: data.open("gzip"),
    "copied": lambda data: data.open("gzip", cache_dir=data.folder / "copies"),
    "remote": lambda data: data.open("remote_plain", features=NUMBERS),
    "remote_gzip": lambda data: data.open("remote_gzip", features=NUMBERS),
    "records": lambda data: data.open(features={"n": "int64", "record": fr.Record()}),
    "steps": lambda data: data.open(
        "steps",
        features=None,
        context_features={"n": "int64"},
        sequence_features=STEPS,
    ),
    "inferred": lambda data: fr.open(data.files("plain")[:1]),
    "skipping": _skipping,
    "concat": lambda data: fr.concat([data.open(), data.open().select(range(5))]),
    "mix": _mixed,
    "selected": lambda data: data.open().select([5, 3, 3, *range(30, 45)]),
    "filtered": lambda data: data.open(features=NUMBERS).filter(is_even),
    "split": lambda data: data.open().split([0.5, 0.5])[1],
}
STREAMED = ("gzip", "remote_gzip")
FULL = ("all", "pread", "gzip", "copied", "selected", "split", "concat")


def _pairs(seed: int, epoch: int) -> list[Untyped]:
    order = np.random.default_rng([seed, epoch]).permutation(N_RECORDS)
    return list(order.reshape(-1, 6))


ORDERS: dict[str, dict[str, Untyped]] = {
    "in_order": {},
    "window": {"shuffle": fr.Window(9)},
    "shuffled": {"shuffle": True},
    "blocks": {"shuffle": fr.Blocks(block_bytes=400, lanes=2)},
    "last_padded": {"shuffle": True, "pad_last": True},
    "a_rank": {"global_batch_size": 10, "rank": 1, "world_size": 2, "pad_last": True},
    "listed": {"batches": _pairs},
}


def add_one(batch: Untyped) -> Untyped:
    """A transform that shows if it is called twice for one batch."""
    batch["n"] += 2
    batch["n"] -= 1
    return batch


def row_of(row: Untyped) -> Untyped:
    return {"n": row["n"] + 1}


_PER_ROW = fr.per_row(row_of, out=NUMBERS)
TRANSFORMS: dict[str, tuple[str, dict[str, Untyped]]] = {
    "none": ("none", {}),
    "inline": ("added", {"transform": add_one, "transform_threads": 0}),
    "thread": ("added", {"transform": add_one, "transform_threads": 1}),
    "threads": ("added", {"transform": add_one, "transform_threads": 2}),
    "row": ("added", {"transform": _PER_ROW, "transform_threads": 0}),
    "rows": ("added", {"transform": _PER_ROW, "transform_threads": 2}),
}


class _KerasEpoch(Iterator[Untyped]):
    """One epoch in the calls that `keras.Model.fit` makes.

    These calls are the code of fastrec. A signal inside `fit` itself ends the training,
    and Keras cannot continue in the middle of an epoch.
    """

    def __init__(self, loader: Untyped) -> None:
        self._data = fr.keras.PyDataset(loader)
        self._n = 0
        self._data.on_epoch_begin()

    def __next__(self) -> Untyped:
        if self._n == len(self._data):
            self._data.on_epoch_end()
            raise StopIteration
        batch = self._data[self._n]
        self._n += 1  # no signal is handled between here and the return
        return batch


def _torch(loader: Untyped) -> Untyped:
    return fr.torch.loader(loader)


def _torch_iterable(loader: Untyped) -> Untyped:
    return fr.torch.IterableDataset(loader)


def _jax(loader: Untyped) -> Untyped:
    return fr.jax.loader(loader)


# Ways to iterate. Each returns an iterable of a loader, which has a state itself or
# leaves it to the loader.
WAYS: dict[str, Callable[[Untyped], Untyped]] = {
    "for": lambda loader: loader,
    "next": lambda loader: loader,
    "resumed": lambda loader: loader,
    "tuples": lambda loader: loader.tuples("n"),
    "repeat": lambda loader: loader.repeat(2),
    "torch": _torch,
    "torch_iterable": _torch_iterable,
    "jax": _jax,
    "keras": _KerasEpoch,
}


@dataclass(frozen=True)
class Kind:
    """What is read, and how."""

    source: str
    order: str
    transform: str
    way: str
    num_threads: int

    def expected(self) -> Kind:
        """Return the kind that delivers the same batches without threads."""
        as_inline = {"thread": "inline", "threads": "inline", "rows": "row"}
        transform = as_inline.get(self.transform, self.transform)
        way = "for" if self.way in ("next", "resumed") else self.way
        return Kind(self.source, self.order, transform, way, 0)

    def __str__(self) -> str:
        return " ".join(map(str, vars(self).values()))

    @property
    def pace(self) -> str:
        """The kinds whose calls take about the same time."""
        return f"{self.source} {self.way}"

    @property
    def group(self) -> str:
        """The adapter, or "readers"."""
        return adapter_of(self.way) or "readers"


def reader_kinds() -> Iterator[Kind]:
    """Yield all kinds, also those of adapters whose framework is not installed."""
    products = itertools.product(SOURCES, ORDERS, TRANSFORMS, WAYS, (0, 1, 2))
    return filter(_exists, itertools.starmap(Kind, products))


def _exists(kind: Kind) -> bool:
    """Return whether fastrec can read the source in this order and way."""
    if kind.source in STREAMED and kind.order not in ("in_order", "window"):
        return False
    if kind.source == "mix" and kind.order in ("window", "listed"):
        return False
    if kind.order == "listed" and kind.source not in ("all", "numbers", "pread"):
        return False
    # Keras accepts arrays of numbers only, and asks for batches by their step.
    return kind.way != "keras" or kind.source in ("numbers", "remote", "filtered")


def _loader(kind: Kind, data: Data) -> Untyped:
    options: dict[str, Untyped] = {"seed": 5, "num_threads": kind.num_threads}
    if kind.order not in ("a_rank", "listed"):
        options["batch_size"] = 5
    options |= ORDERS[kind.order] | TRANSFORMS[kind.transform][1]
    return SOURCES[kind.source](data).loader(**options)


_expected: dict[Kind, list[Untyped]] = {}


def prepare_reader(kind: Kind, data: Data) -> None:
    """Read without threads and signals, which also starts the threads of libraries."""
    key = kind.expected()
    if key not in _expected:
        batches = list(WAYS[key.way](_loader(key, data)))
        if key.way == "for" and key.source in FULL and key.transform == "none":
            for batch in batches:
                if "__valid__" not in batch:
                    check_values(batch)
        _expected[key] = [plain(batch) for batch in batches]
        n_rows = sum(len(batch["n"]) for batch in batches if isinstance(batch, dict))
        if key.source in ("all", "gzip") and key.order == "in_order":
            assert n_rows in (0, N_RECORDS, 2 * N_RECORDS), n_rows


def run_reader(signals: Signals, kind: Kind, data: Data) -> str:
    """Read one epoch, or two, and return how it ended."""
    expected = _expected[kind.expected()]
    made: list[Untyped] = []

    def open_loader() -> None:
        loader = _loader(kind, data)
        made.append((loader, WAYS[kind.way](loader)))

    if signals.call(f"open {kind.pace}", open_loader) and not made:
        open_loader()
    loader, iterable = made.pop()
    moving = iterable if hasattr(iterable, "step") else loader
    iterator, got, is_over = iter(iterable), [], False

    def take() -> None:
        nonlocal is_over
        for batch in iterator:
            got.append(batch)  # noqa: PERF402 (nothing between the two)
        is_over = True

    def take_one() -> None:
        nonlocal is_over
        n = len(got)
        got.extend(itertools.islice(iterator, 1))  # one call of C
        is_over = len(got) == n

    while not is_over:
        is_interrupted = signals.call(
            f"read {kind.pace}", take_one if kind.way == "next" else take
        )
        if not is_interrupted:
            continue
        n = len(got)
        # The pass of a torch data set has its own place. Keras asks for a step again.
        if kind.way not in ("repeat", "torch_iterable", "keras") and not is_over:
            assert moving.step == n or (moving.step == 0 and n == len(expected)), (
                kind,
                moving.step,
                n,
            )
        if signals.draw.random() < 0.05:
            assert [plain(batch) for batch in got] == expected[:n], kind
            if signals.draw.random() < 0.5:
                signals.call("close", loader.close)
            return "dropped"
        if kind.way == "resumed":
            state, loader = loader.state_dict(), _loader(kind, data)
            loader.load_state_dict(state)
            moving, iterator = loader, iter(loader)
            # Of an epoch whose batches are all delivered, the next call would begin
            # the next one.
            is_over = loader.epoch == 1
    assert [plain(batch) for batch in got] == expected, kind
    if kind.way != "torch_iterable":
        assert (moving.epoch, moving.step) == (2 if kind.way == "repeat" else 1, 0)
    return "complete"
