"""TensorFlow: a dataset or loader as a `tf.data.Dataset`.

>>> train = fr.tf.dataset(  # doctest: +SKIP
...     ds, batch_size=256, shuffle=True, label_key="label"
... )
>>> for image, label in train:  # doctest: +SKIP
...     step(image, label)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastrec.arrays.batch import Array, Batch, BytesArray, RaggedArray, SparseArray
from fastrec.dataset.adapted import loader_of
from fastrec.dataset.dataset import Dataset
from fastrec.errors import SchemaError
from fastrec.loader.loader import Loader
from fastrec.loader.options import LoaderKeywords
from fastrec.loader.targets import NO_BATCHES, Key, Keys, Targets
from fastrec.options import extra

with extra("tf", "fastrec.tf"):
    import tensorflow as tf

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["dataset"]


def dataset(
    source: Dataset | Loader[Any],
    batch_size: int | None = None,
    *,
    label_key: Keys | None = None,
    weight_key: Key | None = None,
    shapes: Mapping[Any, Sequence[int | None]] | None = None,
    **options: Unpack[LoaderKeywords],
) -> Any:
    """Return a `tf.data.Dataset` of batches.

    Each pass over the dataset is one epoch of a loader, so ``repeat()`` continues with
    the next epoch. The loader orders, shuffles, shards and batches the records; tf.data
    performs later steps such as ``map`` and ``prefetch``.

    Parameters
    ----------
    source : Dataset or Loader
        The data to read. Pass a Loader without loader options. A Loader is not
        copied, so iteration moves it; run one pass at a time.
    batch_size : int, optional
        Rows in a batch of this rank; see `fastrec.Dataset.loader`.
    label_key : str or list of str, optional
        The label column, or a list of names for a dict of label columns. Elements are
        ``(x, y)``, where ``x`` is the only remaining column, or a dict of the remaining
        columns. Without `label_key`, elements are dicts of all columns.
    weight_key : str, optional
        A column of row weights: elements are ``(x, y, weights)``. With
        ``pad_last=True`` or masked rows, padding and masked rows have weight 0.
    shapes : dict of str to tuple of int or None, optional
        Row shapes of columns, without the batch dimension, if a transform returns
        shapes that differ from the first batch: ``{"tokens": (None,)}``.
    **options
        Options of `fastrec.Dataset.loader`, for a Dataset.

    Returns
    -------
    tf.data.Dataset
        Numbers become tensors, byte strings ``tf.string`` tensors, a `RaggedArray` a
        `tf.RaggedTensor`, and a `SparseArray` a `tf.SparseTensor`. Shapes are static if
        they are the same in every batch. The batch size is static with ``drop_last`` or
        ``pad_last`` and without transforms. The cardinality is ``len(loader)``; it is
        unknown for compressed files that are read in place, for ``batches=``, and for a
        loader in the middle of an epoch.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, such as `shapes` that do not fit the first batch,
        or an epoch has no batches.
    KeyError
        If an argument names an unknown column.
    SchemaError
        If a column cannot become a tensor, or if a transform returns other columns or
        shapes for a later batch.

    Notes
    -----
    Tensors share the memory that the batch was decoded into. Byte strings are copied
    twice, into ``bytes`` and into TensorFlow's own strings. Arrays from a transform may
    be copied once, if their memory is not aligned.

    TensorFlow raises `tf.errors.InvalidArgumentError` with fastrec's message, and
    `UnknownError` for errors of a transform other than ValueError and TypeError. An
    error ends the pass, even with ``ignore_errors()``; to skip damaged records, use
    ``fastrec.open(..., on_error="skip")``.

    The loader's state counts the batches that tf.data has requested; ``prefetch`` and
    `fit` request batches ahead. Load a state before calling this function. A
    `tf.train.Checkpoint` cannot save an iterator over the dataset.
    """
    loader = loader_of("fr.tf.dataset", source, batch_size, options)
    targets = Targets(label_key, weight_key)
    first = loader._upcoming()
    if first is None:
        raise ValueError(NO_BATCHES)
    targets.check([*first])
    specs = _specs(loader, first, shapes or {})
    has_targets = label_key is not None

    def as_item(batch: Batch) -> Any:
        return targets(batch) if has_targets else batch

    described = {id(column): specs[name] for name, column in first.items()}
    structure = tf.nest.map_structure(
        # Computed weights have no spec yet.
        lambda leaf: (
            described.get(id(leaf)) or _spec("weights", leaf, [_static_rows(loader)])
        ),
        as_item(first),
    )
    n_batches = _cardinality(loader)

    def parts(batch: Batch) -> Any:
        _check(batch, specs)
        columns = tf.nest.flatten(as_item(batch))
        return tuple(itertools.chain.from_iterable(map(_arrays, columns)))

    def composed(*parts: Any) -> Any:
        element = tf.nest.pack_sequence_as(structure, parts, expand_composites=True)
        element = tf.nest.map_structure(_with_static_shape, element, structure)
        return tf.data.Dataset.from_tensors(element)

    def batches() -> Iterable[Any]:
        iterator = iter(loader)
        if n_batches is not None and len(loader) - loader.step != n_batches:
            raise ValueError(
                f"the loader is at step {loader.step} of {len(loader)}, but this dataset "
                f"has epochs of {n_batches}: load states and seek before fr.tf.dataset()"
            )
        # A generator ends after an error, so a pass with ignore_errors() ends, too.
        return (parts(batch) for batch in iterator)

    signature = tuple(tf.nest.flatten(structure, expand_composites=True))
    made = tf.data.Dataset.from_generator(batches, output_signature=signature)
    # Not map(): tf.data runs it ahead, which would advance the loader's state.
    made = made.flat_map(composed)
    tf_options = tf.data.Options()
    # The loader divides the data among ranks: tf.distribute must not do it again.
    sharding = tf.data.experimental.AutoShardPolicy.OFF
    tf_options.experimental_distribute.auto_shard_policy = sharding
    # tf.data must not add a prefetch(), which would advance the loader's state.
    tf_options.experimental_optimization.inject_prefetch = False
    made = made.with_options(tf_options)
    if n_batches is not None:
        made = made.apply(tf.data.experimental.assert_cardinality(n_batches))
        # After an error, assert_cardinality() fails for every missing batch. A zip with
        # a range ends the dataset instead; scan() keeps the cardinality.
        steps = tf.data.Dataset.range(n_batches)
        numbered = tf.data.Dataset.zip((made, steps))
        made = numbered.scan(0, lambda state, item: (state, item[0]))
    return made


def _cardinality(loader: Loader) -> int | None:
    """Return the number of batches per epoch, or None if it varies or is unknown."""
    is_streamed = loader.dataset.is_streamed
    if is_streamed or loader.batch_size is None or loader.step or loader._phase:
        return None
    return len(loader)


def _static_rows(loader: Loader) -> int | None:
    """Return the number of rows in every batch, or None if it may vary."""
    is_cut = loader.drop_last and loader.dataset.on_error == "raise"
    if loader._has_transforms or loader._phase or not (loader.pad_last or is_cut):
        return None
    return loader.batch_size


def _specs(
    loader: Loader, batch: Batch, shapes: Mapping[Any, Sequence[int | None]]
) -> dict[Any, Any]:
    """Return the tf.TypeSpec of each column; `batch` is the first batch."""
    for name in shapes:
        if name not in batch:
            raise KeyError(f"shapes= must name one of {[*batch]}, got {name!r}")
    padded = loader.dataset._any_width_columns()
    n_rows = _static_rows(loader)
    specs = {}
    for name, column in batch.items():
        row = list(_shape(name, column)[1:])
        if name in padded and row:
            row[0] = None
        given = list(shapes.get(name, row))
        if not tf.TensorShape(given).is_compatible_with(row):
            raise ValueError(
                f"shapes= is {tuple(given)} for column {name!r}, but its rows are of "
                f"shape {tuple(row)}: write None for a size that varies"
            )
        specs[name] = _spec(name, column, [n_rows, *given])
    return specs


def _shape(name: Key, column: Any) -> tuple[int | None, ...]:
    shape: tuple[int | None, ...] = getattr(column, "shape", ())
    if not shape:
        raise SchemaError(
            f"column {name!r} is of type {type(column).__name__}, which cannot be a "
            "tensor: transform= must return arrays"
        )
    return shape


def _check(batch: Batch, specs: dict[Any, Any]) -> None:
    """Raise a SchemaError if columns or shapes differ from the first batch."""
    if batch.keys() != specs.keys():
        raise SchemaError(
            f"a batch has columns {[*batch]}, but the first one had {[*specs]}: "
            "transform= must return the same columns for every batch"
        )
    for name, column in batch.items():
        shape, expected = _shape(name, column), specs[name].shape
        if expected.is_compatible_with(shape):
            continue
        hint = "transform= must return the same number of dimensions for every batch"
        if len(shape) == len(expected):
            sizes = zip(shape[1:], expected[1:], strict=True)
            varying = tuple(size if size == other else None for size, other in sizes)
            hint = f"pass shapes={{{name!r}: {varying}}} if sizes vary"
        raise SchemaError(
            f"column {name!r} is of shape {shape}, expected {expected}: {hint}"
        )


def _spec(name: Key, column: Array, shape: list[int | None]) -> Any:
    if isinstance(column, SparseArray):
        return tf.SparseTensorSpec(shape, _dtype(name, column.values))
    if not isinstance(column, RaggedArray):
        return tf.TensorSpec(shape, _dtype(name, column))
    splits, values, ragged_rank = column.row_splits.dtype, column.values, 1
    while isinstance(values, RaggedArray):
        values, ragged_rank = values.values, ragged_rank + 1
    dtype = _dtype(name, values)
    return tf.RaggedTensorSpec(shape, dtype, ragged_rank, splits)


def _dtype(name: Key, values: Any) -> Any:
    if isinstance(values, BytesArray):
        return tf.string
    try:
        dtype = tf.as_dtype(values.dtype)
    except TypeError:
        dtype = None
    if dtype is None or dtype == tf.string:
        raise SchemaError(
            f"column {name!r} is an array of {values.dtype}, which cannot be a tensor: "
            "transform= may convert it, and ds.select_columns([...]) leaves columns out"
        )
    return dtype


def _arrays(column: Any) -> list[npt.NDArray[Any]]:
    """Return the arrays of a column, in the order in which its spec lists them."""
    if isinstance(column, SparseArray):
        shape = np.array(column.dense_shape, np.int64)
        return [column.indices, np.asarray(column.values), shape]
    splits = []
    while isinstance(column, RaggedArray):
        splits.append(column.row_splits)
        column = column.values
    return [np.asarray(column), *splits]


def _with_static_shape(tensor: Any, spec: Any) -> Any:
    if not isinstance(tensor, tf.SparseTensor):
        return tensor
    # TensorFlow infers the static shape from constants.
    sizes = [
        tensor.dense_shape[i] if size is None else tf.constant(size, tf.int64)
        for i, size in enumerate(spec.shape)
    ]
    return tf.SparseTensor(tensor.indices, tensor.values, tf.stack(sizes))
