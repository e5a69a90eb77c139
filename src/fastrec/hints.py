"""Suggestions for misspelled names and for names from other libraries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_PER_ROW = "fr.per_row(function, out={...}) for a function of one row"

_OUT = (
    'out={"image": fr.FixedLen((224, 224, 3), "uint8")}: the columns that the function '
    "returns, with the shape and dtype of one row"
)

# Options of fastrec, and the names that other libraries give them.
_OPTIONS = {
    "batch_size=": "batch",
    "num_threads= (native threads; there are no worker processes)": "num_workers",
    "num_threads=": "num_parallel_calls num_parallel_reads reader_num_threads n_threads",
    "drop_last=": "drop_remainder drop_last_batch",
    "loader.repeat(epochs)": "num_epochs repeat",
    "prefetch= (batches)": "prefetch_factor prefetch_queue_depth",
    "shuffle=True (of all records; fr.Window(n) has a buffer)": (
        "buffer_size shuffle_buffer_size"
    ),
    "batches= (a function of seed and epoch)": "sampler batch_sampler",
    "world_size=": "num_replicas num_shards shard_count",
    "rank=": "shard_id shard_index",
    "pad_last=": "pad_last_batch",
    "seed=": "shuffle_seed",
    "transform= (it gets the whole batch)": "collate_fn map_fn",
    "features=": "description schema",
    "compression=": "compression_type options",
    "index_dir=": "index_path",
    'on_error="skip"': "ignore_errors",
    "on_error=": "handler",
    "max_errors=": "max_corrupted_records_to_skip",
}

# Replacements for options and attributes of other libraries.
_HINTS: dict[str, dict[str, str]] = {
    "option": {name: o for o, names in _OPTIONS.items() for name in names.split()},
    "Dataset": {
        "as_numpy_iterator": "for row in ds, or for batch in ds.loader(batch_size)",
        "batch": "ds.loader(batch_size)",
        "columns": "ds.column_names, or ds.select_columns([...])",
        "cache": "fr.open(..., cache_dir=) for compressed files; others need no cache",
        "concatenate": "fr.concat([ds, other])",
        "dtype": "ds.schema",
        "element_spec": "ds.schema",
        "enumerate": "enumerate(ds)",
        "features": "ds.schema",
        "image": 'row["image"] in ds, or batch["image"] in ds.loader(batch_size)',
        "interleave": "fr.mix({...}), or shuffle=True in ds.loader()",
        "label": 'row["label"] in ds, or batch["label"] in ds.loader(batch_size)',
        "map": (
            "ds.with_transform(function), or transform=function in ds.loader(): the "
            f"function gets whole batches; {_PER_ROW}"
        ),
        "num_rows": "len(ds)",
        "padded_batch": "features={...: fr.FixedLenSequence(...)} and ds.loader(batch_size)",
        "parse": "features= of fr.open()",
        "prefetch": "ds.loader(batch_size), which reads ahead by prefetch= batches",
        "repeat": "ds.loader(batch_size).repeat(epochs)",
        "sample": "ds.select(indices)",
        "shape": "len(ds) and ds.schema",
        "shuffle": "shuffle=True in ds.loader()",
        "skip": "ds.select(range(n, len(ds)))",
        "take": "ds.select(range(n)), or ds.head(n) for a list of rows",
        "to_pandas": "pandas.DataFrame.from_arrow(ds)",
        "to_tf_dataset": "fr.tf.dataset(ds, batch_size=256)",
        "train_test_split": "ds.split([0.9, 0.1])",
    },
    "Loader": {
        "map": f"transform=function in ds.loader(); {_PER_ROW}",
        "prefetch": "prefetch= in ds.loader()",
        "sampler": (  # accelerate looks it up before it skips batches
            "loader.seek(n) to skip batches; to resume a Hugging Face Trainer, load the "
            "loader's state in get_train_dataloader() and pass ignore_data_skip=True to "
            "TrainingArguments"
        ),
        "shape": (  # Keras looks it up before it converts an array
            "for batch in loader, because a Loader is not an array; for Keras, "
            'model.fit(fr.keras.PyDataset(loader, label_key="label"), shuffle=False)'
        ),
        "shuffle": "shuffle=True in ds.loader()",
        "take": "itertools.islice(loader, n)",
        "unbatch": "for row in ds",
    },
    "fastrec": {
        "DataLoader": "fr.open(paths).loader(batch_size)",
        "Example": "fr.encode_example(row), or fr.compat.tf_train.Example",
        "FixedLenFeature": "fr.FixedLen(shape, dtype), or fr.compat.tf_io.FixedLenFeature",
        "FixedLenSequenceFeature": "fr.FixedLenSequence(shape, dtype)",
        "RaggedFeature": "fr.Ragged(...) or fr.VarLen(dtype)",
        "SequenceExample": (
            "fr.encode_sequence_example(...), or fr.compat.tf_train.SequenceExample"
        ),
        "SparseFeature": "fr.Sparse(...)",
        "TFRecordDataset": "fr.open(paths)",
        "TFRecordReader": "fr.read_records(paths)",
        "TFRecordWriter": "fr.Writer(path)",
        "VarLenFeature": "fr.VarLen(dtype), or fr.compat.tf_io.VarLenFeature",
        "load": "fr.open(paths)",
        "load_dataset": "fr.open(paths)",
        "read": "fr.open(paths), or fr.read_records(paths) for bytes",
        "tfrecord_loader": "fr.open(paths).loader(batch_size)",
    },
    "fastrec.torch": {
        "DataLoader": (
            "fr.torch.loader(ds, batch_size), or torch.utils.data.DataLoader with "
            "fr.torch.Dataset or fr.torch.IterableDataset"
        ),
        "TFRecordDataset": "fr.torch.IterableDataset(ds, batch_size)",
    },
}


def did_you_mean(
    name: object, names: Iterable[object], form: str = "{!r}", cutoff: float = 0.6
) -> str:
    """Return "; did you mean NAME?" with the most similar name; "" if all differ."""
    import difflib  # slow to import, and used for errors only

    text, known = str(name), list(map(str, names))
    similar = difflib.get_close_matches(text, known, n=1, cutoff=cutoff)
    # A name may differ only in case.
    similar += [each for each in known if each.lower() == text.lower()]
    return f"; did you mean {form.format(similar[0])}?" if similar else ""


def no_column(
    name: object, columns: Iterable[object], owner: str, kind: str = "column"
) -> str:
    """Return an error message: `owner` has no column (or other `kind`) named `name`."""
    known = list(columns)
    listed = ", ".join(map(repr, known))
    return f"no {kind} {name!r}; {owner} has {listed}{did_you_mean(name, known)}"


def checked_names(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap `function`: its TypeError for a wrong or missing option suggests a fix."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    required = [
        p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    called = function.__qualname__.removesuffix(".__init__").split(".")[-1]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name in names:
                continue
            text = f"{called}() has no option {name!r}"
            right = _HINTS["option"].get(name, "")
            if right.split("=")[0] in names or "(" in right.split("=")[0]:
                raise TypeError(f"{text}; use {right}")
            raise TypeError(text + did_you_mean(name, names, "{}="))
        for name in required:
            if name not in kwargs:
                hint = _OUT if name == "out" else f"{name}="
                raise TypeError(f"{called}() requires {hint}")
        return function(*args, **kwargs)

    return checked


def missing_attribute(owner: object, name: str) -> AttributeError:
    """Return an AttributeError about `name`; suggest a replacement if one is known."""
    if inspect.ismodule(owner):
        kinds, text = [owner.__name__], f"module {owner.__name__!r}"
    else:
        kinds = [kind.__name__ for kind in type(owner).__mro__]
        text = f"{kinds[0]!r} object"
    text += f" has no attribute {name!r}"
    hints = next((_HINTS[kind] for kind in kinds if kind in _HINTS), {})
    if hint := hints.get(name):
        text += f"; use {hint}"
    elif not name.startswith("_"):
        text += did_you_mean(name, dir(owner), "{}", 0.7)
    return AttributeError(text)
