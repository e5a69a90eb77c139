"""``fastrec schema``: print the specs of the features, to paste into a program."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

import fastrec as fr
from fastrec.cli.arguments import Columns, Paths, names_in
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.terminal import console, json_line
from fastrec.features.fixed import FixedLen, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.features.record import Record
from fastrec.features.sequence_schema import SequenceSchema
from fastrec.hints import nearest

__all__ = ["opened", "schema", "with_varying_lengths"]

_TF_DTYPES = {"int64": "tf.int64", "float32": "tf.float32", "bytes": "tf.string"}


class _Format(str, enum.Enum):
    PYTHON = "python"
    TF_IO = "tf.io"
    JSON = "json"


def opened(files: list[str], columns: list[str] | None = None) -> fr.Dataset:
    """Open files as one dataset, with the inferred specs of `columns` or of all."""
    ds = fr.open(files)
    if columns is None:
        return ds
    for name in columns:
        if name not in ds.schema:
            names = [str(known) for known in ds.schema]
            similar = nearest(name, names)
            hint = f"did you mean {similar!r}?" if similar else f"they are {names}"
            msg = f"no column {name!r}; {hint}"
            raise typer.BadParameter(msg)
    return ds.select_columns(columns)


def with_varying_lengths(ds: fr.Dataset, *, record: str = "") -> fr.Dataset:
    """Return the dataset with `VarLen` for `FixedLen`, which no number of values violates.

    The column `record`, if it is not "", has the whole records.
    """
    specs: dict[Any, Any] = {
        name: VarLen(spec.dtype, key=spec.key) if isinstance(spec, FixedLen) else spec
        for name, spec in ds.schema.items()
    }
    if record:
        specs[record] = Record()
    source = ds._view.source.with_schema(lambda schema: schema._with(specs))
    return fr.Dataset(ds._view.of(source))


def schema(
    paths: Paths,
    *,
    format: Annotated[
        _Format, typer.Option("--format", help="What to print.")
    ] = _Format.PYTHON,
    columns: Columns = None,
) -> None:
    """Print the specs of the features, to paste into a program.

    They are inferred from up to 4,096 records, spread evenly over the files. The format
    "python" is for fastrec.open, "tf.io" for tf.io.parse_example.
    """
    files = files_of(paths, joins=False)
    indexed(files)  # behind a progress bar
    specs = opened(files, names_in(columns)).schema
    sections = _sections(specs)
    out = console()
    if format is _Format.JSON:
        out.print(json_line({name: _fields(part) for name, part in sections.items()}))
    elif format is _Format.TF_IO:
        out.print("import tensorflow as tf")
        for name, part in sections.items():
            out.print(f"\n{name} = {{")
            for key, spec in part.items():
                out.print(f"    {key!r}: {_tf_io(key, spec)},")
            out.print("}")
    else:
        name = "features" if "features" in sections else "options"
        out.print(f"import fastrec as fr\n\n{name} = {specs!r}")


def _sections(specs: fr.Schema) -> dict[str, dict[str | bytes, Any]]:
    """Return the specs by the argument that they are for."""
    if not isinstance(specs, SequenceSchema):
        return {"features": dict(specs)}
    lists = specs._list_names
    return {
        "context_features": {k: specs[k] for k in specs if k not in lists},
        "sequence_features": {k: specs[k] for k in specs if k in lists},
    }


def _fields(specs: dict[str | bytes, Any]) -> dict[str | bytes, object]:
    """Return the arguments of specs, with the name of their class."""
    return {
        name: {
            "spec": type(spec).__name__,
            "dtype": getattr(spec, "dtype", "bytes"),
            "shape": getattr(spec, "shape", ()),
            "key": name if spec.key is None else spec.key,
        }
        for name, spec in specs.items()
    }


def _tf_io(name: str | bytes, spec: Any) -> str:  # noqa: ANN401
    """Return an inferred spec as a call of tf.io."""
    if isinstance(spec, Record) or spec.key is not None or isinstance(name, bytes):
        msg = f"cannot write column {name!r} as a feature of tf.io: fr.{spec!r}"
        raise fr.Error(msg)
    dtype = _TF_DTYPES[spec.dtype]
    if isinstance(spec, VarLen):
        return f"tf.io.VarLenFeature({dtype})"
    shape = list(spec.shape)
    if isinstance(spec, FixedLenSequence):
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype})"
    return f"tf.io.FixedLenFeature({shape}, {dtype})"
