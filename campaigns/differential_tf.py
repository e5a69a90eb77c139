"""TensorFlow in processes that may crash: specs and records -> columns.

A supervisor imports TensorFlow once and forks a worker. TensorFlow's parser crashes on
some input; then the supervisor reports the crash and forks the next worker. Run as a
program, this module is the supervisor. Importing it does not import TensorFlow.

    parent     --> worker   ("specs", specs), then ("run" or "sift", mode, groups)
    worker     --> parent   ("outcome", columns or None) of each group, in order
    supervisor --> parent   ("outcome", Crash) instead of the outcome that crashed

A spec is plain data, see `differential_cases.Spec`. Columns are returned as plain
values that compare bit for bit, see `frozen_array`.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from campaigns import ROOT

__all__ = ["Crash", "Tensorflow", "frozen_array", "frozen_strings"]

LENGTH = struct.Struct("<Q")
MOST_MEMORY = 6 << 30


class Crash(NamedTuple):
    """TensorFlow crashed with this signal."""

    signal: str


def frozen_array(array: Any) -> Any:
    """Return the dtype, shape and bytes of an array of numbers."""
    array = np.asarray(array)
    return array.dtype.name, array.shape, array.tobytes()


def frozen_strings(shape: Sequence[int], strings: Any) -> Any:
    """Return the shape and nested lists of byte strings."""
    return "bytes", tuple(shape), strings


def write_message(stream: BinaryIO, message: object) -> None:
    """Write one length-prefixed message."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(stream: BinaryIO) -> Any:
    """Read one message, or raise EOFError if the other side has exited."""
    (size,) = LENGTH.unpack(read_bytes(stream, LENGTH.size))
    return pickle.loads(read_bytes(stream, size))


def read_bytes(stream: BinaryIO, n: int) -> bytes:
    """Read `n` bytes from a pipe, which may deliver them in pieces."""
    pieces = []
    while n > 0:
        piece = stream.read(n)
        if not piece:
            raise EOFError
        pieces.append(piece)
        n -= len(piece)
    return b"".join(pieces)


class Tensorflow:
    """The parent's interface."""

    def __init__(self) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment["TF_ENABLE_ONEDNN_OPTS"] = "0"
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "campaigns.differential_tf"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._to: BinaryIO = self._keeper.stdin  # type: ignore[assignment]
        self._from: BinaryIO = self._keeper.stdout  # type: ignore[assignment]
        self._specs: tuple[Any, ...] = ()

    def close(self) -> None:
        """End the supervisor, and thereby its worker."""
        self._to.close()
        self._keeper.wait(60)
        self._from.close()

    def renew(self) -> None:
        """Continue in a new worker."""
        write_message(self._to, ("end",))
        assert read_message(self._from) == ("ended",)
        self._specs = ()

    def set_specs(self, specs: Sequence[Any]) -> None:
        if self._specs != tuple(specs):
            write_message(self._to, ("specs", list(specs)))
            self._specs = tuple(specs)

    def answer(self) -> Any:
        kind, outcome = read_message(self._from)
        if kind == "failed":
            raise RuntimeError(outcome)
        if isinstance(outcome, Crash):
            self._specs = ()
        return outcome

    def sift(self, specs: Sequence[Any], mode: str, records: list[bytes]) -> list[int]:
        """Return the numbers of records that may be accepted; others are rejected."""
        self.set_specs(specs)
        write_message(self._to, ("sift", mode, records))
        found = self.answer()
        return list(range(len(records))) if isinstance(found, Crash) else found

    def run(self, specs: Sequence[Any], mode: str, groups: Sequence[Any]) -> list[Any]:
        """Return the columns of each group of records, None if rejected, or a `Crash`.

        A group is a list of records, or one record if the mode is for single records.
        """
        outcomes: list[Any] = []
        while len(outcomes) < len(groups):
            self.set_specs(specs)
            pending = list(groups[len(outcomes) :])
            write_message(self._to, ("run", mode, pending))
            for _ in pending:
                outcomes.append(self.answer())
                if isinstance(outcomes[-1], Crash):
                    break
        return outcomes


# The worker.


class Worker:
    """The code that runs in the fork."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.dtypes = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string}
        self.tensor_proto = type(tf.make_tensor_proto(0))
        self.refusals = (
            tf.errors.InvalidArgumentError,
            tf.errors.ResourceExhaustedError,  # above MOST_MEMORY
            UnicodeDecodeError,  # while it formats its error
            TypeError,  # an unknown dtype
            ValueError,
        )
        self.specs: list[Any] = []
        self.functions: dict[str, Any] = {}

    # Specs.

    def feature_of(self, spec: Any) -> dict[Any, Any]:
        """Return the features for tf.io, by key."""
        io, dtype = self.tf.io, self.dtypes.get(spec.kind)
        if spec.form == "fixed":
            feature = io.FixedLenFeature(spec.shape, dtype, spec.default)
        elif spec.form == "sequence":
            feature = io.FixedLenSequenceFeature(
                spec.shape, dtype, spec.allow_missing, spec.default
            )
        elif spec.form == "var":
            feature = io.VarLenFeature(dtype)
        elif spec.form == "ragged":
            feature = io.RaggedFeature(
                dtype,
                spec.keys[0],
                [self.partition(part) for part in spec.partitions],
                self.tf.as_dtype(spec.splits),
                validate=True,
            )
        elif spec.form == "sparse":
            feature = io.SparseFeature(
                list(spec.keys[1:]),
                spec.keys[0],
                dtype,
                list(spec.shape),
                spec.already_sorted,
            )
        elif spec.form in ("raw", "tensor"):
            feature = io.FixedLenFeature((), self.tf.string, spec.default)
        else:
            assert spec.form == "stack"
            defaults = spec.default or [None] * len(spec.keys)
            return {
                key: io.FixedLenFeature((), dtype, default)
                for key, default in zip(spec.keys, defaults, strict=True)
            }
        return {spec.name: feature}

    def partition(self, part: Any) -> Any:
        kind, value = part
        return getattr(self.tf.io.RaggedFeature, kind)(value)

    def set_specs(self, specs: list[Any]) -> None:
        self.specs = specs
        self.functions = {}

    def function(self, mode: str) -> Any:
        """Return the parsing function, traced once."""
        if mode in self.functions:
            return self.functions[mode]
        tf = self.tf
        features: list[dict[Any, Any]] = [{}, {}]
        for spec in self.specs:
            features[spec.section == "lists"].update(self.feature_of(spec))
        is_single = mode.startswith("single")
        if mode.endswith("sequence"):
            parse = tf.io.parse_sequence_example
            if is_single:
                parse = tf.io.parse_single_sequence_example
            arguments: list[Any] = [part or None for part in features]
        else:
            parse = tf.io.parse_single_example if is_single else tf.io.parse_example
            arguments = [features[0]]
        signature = tf.TensorSpec([] if is_single else [None], tf.string)

        def traced(records: Any) -> Any:
            return parse(records, *arguments)

        function = tf.function(traced, input_signature=[signature])
        self.functions[mode] = function.get_concrete_function()
        return self.functions[mode]

    # Outcomes.

    def outcome(self, mode: str, group: Any) -> Any:
        function = self.function(mode)
        try:
            found = function(self.tf.constant(group, self.tf.string))
            if not mode.endswith("sequence"):
                found = (found,)
            columns = [self.column(spec, found) for spec in self.specs]
            if mode == "sequence":
                lengths = found[2]
                columns += [
                    self.frozen(lengths[spec.name])
                    for spec in self.specs
                    if spec.section == "lists" and spec.form == "sequence"
                ]
        except self.refusals:
            return None
        return columns

    def sift(self, mode: str, records: list[bytes]) -> list[int]:
        """Return which records TensorFlow parses, each alone.

        In a pipeline, where a refusal costs no exception of Python's. What is made of
        the parsed strings afterwards, raw or tensors, may still be refused.
        """
        tf, function = self.tf, self.function(mode)

        def size(i: Any, record: Any) -> Any:
            found = function(record if mode.startswith("single") else record[None])
            parts = tf.nest.flatten(found, expand_composites=True)
            return i, tf.add_n([tf.size(part) for part in parts])

        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        options.autotune.enabled = False
        options.threading.private_threadpool_size = 1
        numbered = tf.range(len(records)), tf.constant(records, tf.string)
        pipeline = tf.data.Dataset.from_tensor_slices(numbered).map(size)
        pipeline = pipeline.ignore_errors().batch(len(records)).with_options(options)
        return [int(i) for batch, _ in pipeline for i in batch.numpy()]

    def column(self, spec: Any, found: Any) -> Any:
        tf = self.tf
        parsed = found[spec.section == "lists"]
        if spec.form == "stack":
            return self.frozen(tf.stack([parsed[key] for key in spec.keys], axis=-1))
        column = parsed[spec.name]
        if spec.form == "raw":
            decoded = tf.io.decode_raw(
                column, tf.as_dtype(spec.dtype), little_endian=spec.little_endian
            )
            # A batch has as many strings, of which each is an array of this shape.
            return self.frozen(
                tf.reshape(decoded, [*column.shape, *spec.shape])
                if spec.dtype != "bool"
                else tf.reshape(
                    tf.io.decode_raw(column, tf.uint8) != 0,
                    [*column.shape, *spec.shape],
                )
            )
        if spec.form == "tensor":
            return self.tensors(spec, column)
        return self.frozen(column)

    def tensors(self, spec: Any, column: Any) -> Any:
        """Return each tensor, or all as one array."""
        tf = self.tf
        strings = column.numpy()
        is_one = isinstance(strings, bytes)
        tensors = []
        for string in [strings] if is_one else strings.tolist():
            dtype = tf.as_dtype(spec.dtype) if spec.shape is not None else None
            tensor = tf.io.parse_tensor(string, dtype or self.dtype_of(string))
            if spec.shape is not None and tuple(tensor.shape) != spec.shape:
                msg = "another shape"
                raise ValueError(msg)
            tensors.append(tensor)
        if spec.shape is None:
            frozen = [self.frozen(tensor) for tensor in tensors]
            return frozen[0] if is_one else ("tensors", frozen)
        if not tensors:
            dtype = tf.as_dtype(spec.dtype)
            return self.frozen(tf.zeros([0, *spec.shape], dtype))
        return self.frozen(tensors[0] if is_one else tf.stack(tensors))

    def dtype_of(self, tensor: bytes) -> Any:
        """Return the dtype of a serialized tensor."""
        try:
            message = self.tensor_proto.FromString(tensor)
        except DecodeError as error:
            raise ValueError from error
        return self.tf.as_dtype(message.dtype)

    def frozen(self, column: Any) -> Any:
        """Return a column as plain values."""
        tf = self.tf
        if isinstance(column, tf.SparseTensor):
            return (
                "sparse",
                column.indices.numpy().tolist(),
                self.frozen(column.values),
                tuple(column.dense_shape.numpy().tolist()),
            )
        if isinstance(column, tf.RaggedTensor):
            splits = frozen_array(column.row_splits.numpy())
            return "ragged", splits, self.frozen(column.values)
        array = column.numpy()
        if isinstance(array, bytes):
            return frozen_strings((), array)
        if array.dtype == object:
            return frozen_strings(array.shape, array.tolist())
        return frozen_array(array)

    def serve(self, source: BinaryIO, target: BinaryIO) -> None:
        """Answer requests until the parent exits or requests a new worker."""
        while True:
            message = read_message(source)
            if message[0] == "end":
                write_message(target, ("ended",))
                return
            if message[0] == "specs":
                self.set_specs(message[1])
                continue
            what, mode, groups = message
            if what == "sift":
                write_message(target, ("outcome", self.sift(mode, groups)))
                continue
            for group in groups:
                write_message(target, ("outcome", self.outcome(mode, group)))


def keep() -> None:
    """Fork workers, one after another, until the parent exits."""
    # Keep TensorFlow's output out of the messages.
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    import tensorflow as tf

    while True:
        pid = os.fork()
        if pid == 0:
            # Some numbers in a record make TensorFlow allocate that much memory.
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
            tf.config.threading.set_inter_op_parallelism_threads(1)
            tf.config.threading.set_intra_op_parallelism_threads(1)
            try:
                Worker(tf).serve(source, target)
            except EOFError:
                os._exit(1)
            except BaseException:  # noqa: BLE001 (the parent raises it)
                write_message(target, ("failed", traceback.format_exc()))
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            write_message(target, ("outcome", Crash(name)))
        elif os.WEXITSTATUS(status) != 0:
            return


if __name__ == "__main__":
    # Pickled classes must be importable from the module of this name.
    from campaigns.differential_tf import Crash, keep

    keep()
