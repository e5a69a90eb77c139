"""Keras: a `keras.utils.PyDataset` for `fit`, `evaluate` and `predict`.

Works with every backend of Keras 3; TensorFlow is not required.

>>> train = fr.keras.PyDataset(  # doctest: +SKIP
...     ds, batch_size=256, shuffle=True, label_key="label"
... )
>>> model.fit(train, epochs=5, shuffle=False)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fastrec import _core
from fastrec.arrays.batch import Batch, BytesArray, RaggedArray, SparseArray
from fastrec.caller_warnings import warn_caller
from fastrec.dataset.adapted import loader_of
from fastrec.dataset.dataset import Dataset
from fastrec.errors import SchemaError
from fastrec.loader.collate import VALID
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderKeywords
from fastrec.loader.targets import NO_BATCHES, Key, Keys, Targets
from fastrec.options import extra

try:
    with extra("keras", "fastrec.keras"):
        import keras
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("jax", "torch", "tensorflow"):
        raise
    message = (
        f"cannot import keras: its backend needs {missing}, which is not installed: set "
        "KERAS_BACKEND=torch or KERAS_BACKEND=jax, whichever is installed, in the "
        "environment before Python starts"
    )
    raise ModuleNotFoundError(message, name=missing) from None

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["PyDataset"]


# Dtypes that torch.from_numpy accepts and Keras can compute with.
_TORCH_DTYPES = {"bool", "uint8", "int8", "int16", "int32", "int64"}
_TORCH_DTYPES |= {"float16", "float32", "float64"}

_SHUFFLED = (
    "Keras asks for batches in a shuffled order, which prevents prefetching: pass "
    "shuffle=False to fit(), and shuffle=True to the loader"
)


class PyDataset(keras.utils.PyDataset):
    """Batches of a loader as a Keras dataset.

    ``dataset[i]`` is batch `i` of the loader's epoch; calls may come in any order. The
    loader prefetches if Keras requests batches in order: pass ``shuffle=False`` to
    `fit`, and ``shuffle=True`` to the loader, which shuffles records, not batches.

    The dataset controls the loader while Keras uses it. The loader moves to its next
    epoch after Keras has requested all batches and ended its epoch. To resume a run,
    call ``loader.set_epoch(initial_epoch)`` with the first epoch of `fit`, or load the
    loader's state. Keras restarts a partially trained epoch.

    Parameters
    ----------
    source : Dataset or Loader
        The data to read; columns must be numeric arrays. Pass a Loader without loader
        options. The Loader is not copied, so Keras moves it.
    batch_size : int, optional
        Rows in a batch of this rank; see `fastrec.Dataset.loader`.
    label_key : str or list of str, optional
        The column that the model predicts, or a list of columns for a model whose
        outputs have these names. Without `label_key`, batches have no labels.
    weight_key : str, optional
        A column of row weights for the loss and weighted metrics.
    workers, use_multiprocessing, max_queue_size
        See `keras.utils.PyDataset`. Omit them: the loader's threads are faster than
        workers. In `fit` with workers, Keras 3.15 delivers some batches twice and omits
        other batches; `evaluate` and `predict` are correct.
    **options
        Options of `fastrec.Dataset.loader`, for a Dataset.

    Raises
    ------
    TypeError
        If `source` is neither a Dataset nor a Loader, or options come with a Loader.
    KeyError
        If `label_key` or `weight_key` names an unknown column.
    SchemaError
        If a column cannot be a tensor; the message says how to convert it.
    ValueError
        If files are compressed and `cache_dir` is not set, if an epoch has no batches,
        or if no column is left for the inputs.

    Notes
    -----
    Items are ``(x, y)``, ``(x, y, weights)`` with `weight_key`, or ``(x,)`` without
    `label_key`. The inputs ``x`` are the only remaining column, or a dict of all
    remaining columns. With ``pad_last=True`` or masked rows, padding and masked rows
    have weight 0. Only ``weighted_metrics`` use weights, so use weights for training,
    not for `evaluate` and `predict`. Keras rejects ``class_weight`` with weights.

    Use another loader for validation. Each call of ``fit(steps_per_epoch=k)`` begins
    with the first batches of the epoch. With the PyTorch backend, tensors share the
    memory of the batch.
    """

    def __init__(
        self,
        source: Dataset | Loader[Any],
        batch_size: int | None = None,
        *,
        label_key: Keys | None = None,
        weight_key: Key | None = None,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        loader = loader_of("fr.keras.PyDataset", source, batch_size, options)
        super().__init__(workers, use_multiprocessing, max_queue_size)
        if workers > 1 or (workers > 0 and use_multiprocessing):
            warn_caller(
                "Keras 3.15 itself loses records in fit() with workers, and repeats "
                "others: leave out workers= and use_multiprocessing=; the loader has "
                "its own threads"
            )
        self._loader = loader
        self._targets = Targets(label_key, weight_key)
        loader.dataset._source.files.check_random_access("fastrec.keras")
        if not len(loader):
            raise ValueError(NO_BATCHES)
        batch = loader.batch(0)
        self._check(batch)
        inputs = [name for name in batch if name != VALID]
        if label_key is None and len(inputs) > 1:
            warn_caller(
                "batches have no labels, and the inputs are a dict of "
                f"{', '.join(map(repr, inputs))}: pass label_key= to fit a model to labels"
            )
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._ahead: Iterator[Batch] | None = None  # of the loader, which prefetches
        # An epoch of the loader, and the steps that Keras has requested.
        self._asked: tuple[int, set[int]] = (0, set())
        self._is_within_epoch = False  # whether Keras runs an epoch
        self._has_warned = False

    def _check(self, batch: Batch) -> None:
        self._targets.check([*batch])
        for name, column in batch.items():
            kind = f"type {type(column).__name__}"
            if isinstance(column, np.ndarray):
                if _is_taken(column.dtype):
                    continue
                kind = f"dtype {column.dtype}"
            raise SchemaError(
                f"column {name!r} is of {kind}, but Keras requires numeric arrays: "
                f"{_cure(column)}, and ds.select_columns([...]) leaves columns out"
            )

    # Methods that Keras calls.

    @property
    def num_batches(self) -> int:
        """The number of batches in the loader's epoch."""
        return len(self)

    def __len__(self) -> int:
        with _core.HeldLock(self._lock):
            return self._n_steps()

    def _n_steps(self) -> int:
        if self._loader._phase:
            self._loader.seek(0)  # Keras cannot begin in the middle of an epoch
        return len(self._loader)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return batch `index` as ``(x,)``, ``(x, y)`` or ``(x, y, weights)``.

        Raises an IndexError if the epoch has no such batch, and a ValueError if all rows
        of the batch were skipped.
        """
        batch = self._batch(index)
        if not len(next(iter(batch.values()))):
            raise ValueError(
                f"step {index} of epoch {self._loader.epoch} has no rows for Keras: "
                'all were skipped; fastrec.open(..., on_error="mask") keeps skipped '
                "rows with weight 0"
            )
        item: tuple[Any, ...] = self._targets(batch)
        if _is_on_torch():
            item = tuple(_as_torch_tensors(part) for part in item)
        return item

    def _batch(self, index: int) -> Batch:
        loader = self._loader
        with _core.HeldLock(self._lock):
            epoch = loader.epoch
            if 0 <= index < self._n_steps():
                self._steps_asked().add(index)
                # Workers request batches in any order.
                if self.workers <= 1 and not self.use_multiprocessing:
                    if index == 0:
                        self._ahead = None
                        loader.seek(0)
                        self._ahead = iter(loader)
                    ahead = self._ahead
                    is_running = ahead is not None and loader._running() is ahead
                    if ahead is not None and is_running and loader.step == index:
                        return next(ahead)
                    self._ahead = None
                    if self._is_within_epoch and not self._has_warned:
                        self._has_warned = True
                        warn_caller(_SHUFFLED)
        batch: Batch = loader.batch(index, epoch)
        return batch

    def _steps_asked(self) -> set[int]:
        """Return the steps of the loader's epoch that Keras has requested."""
        if self._asked[0] != self._loader.epoch:
            self._asked = (self._loader.epoch, set())
        return self._asked[1]

    def on_epoch_begin(self) -> None:
        """Record that an epoch is running; Keras also calls this to inspect a batch."""
        self._is_within_epoch = True

    def on_epoch_end(self) -> None:
        """Move the loader to its next epoch, if Keras has requested all batches.

        Keras also calls this method before the first epoch, after it inspects a batch,
        and after every ``steps_per_epoch`` steps, although the same pass continues.
        """
        with _core.HeldLock(self._lock):
            is_whole = len(self._steps_asked()) >= self._n_steps()
            # Keras requested the batches from other processes.
            is_elsewhere = self.use_multiprocessing and self._is_within_epoch
            self._is_within_epoch = False
            if is_whole or is_elsewhere:
                # A signal may raise in between. The epoch changes in one step. If Keras
                # calls this again, it has not requested any step of the new epoch.
                self._ahead = None
                self._loader.set_epoch(self._loader.epoch + 1)

    # Pickling, for the processes of use_multiprocessing.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_ahead": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()


def _is_taken(dtype: np.dtype[Any]) -> bool:
    # NumPy reports bfloat16 as raw data (kind "V").
    is_numeric = dtype.kind in "biufc" or dtype.name == "bfloat16"
    return is_numeric and not (dtype == np.uint64 and _is_on_torch())


def _is_on_torch() -> bool:
    return bool(keras.backend.backend() == "torch")


def _cure(column: object) -> str:
    """Return a hint on how to convert a column to a numeric array."""
    if isinstance(column, RaggedArray):
        return "fr.FixedLenSequence pads rows to one length"
    if isinstance(column, BytesArray):
        return "fr.Raw or transform= may convert byte strings to arrays"
    if isinstance(column, SparseArray):
        return "transform= may call its to_dense()"
    if isinstance(column, np.ndarray):
        return "transform= may convert it to a dtype that the backend supports"
    if hasattr(column, "dtype"):
        return "pass the plain ds.loader(...), or let transform= return arrays"
    return "transform= must return arrays"


def _as_torch_tensors(part: Any) -> Any:
    """Convert arrays to torch tensors without a copy if possible; Keras would copy."""
    if isinstance(part, dict):
        return {name: _as_torch_tensors(array) for name, array in part.items()}
    is_taken = str(part.dtype) in _TORCH_DTYPES and part.flags.writeable
    if is_taken and part.flags.c_contiguous:
        return importlib.import_module("torch").from_numpy(part)
    return part
