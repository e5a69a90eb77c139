"""``fastrec schema``: print the specs of the features, to paste into a program."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

import fastrec as fr
from fastrec.cli.arguments import AsJson, Columns, Paths, names_in
from fastrec.cli.inputs import files_of, indexed
from fastrec.cli.terminal import console, json_line
from fastrec.features.fixed import Record, VarLen
from fastrec.features.padded import FixedLenSequence
from fastrec.hints import no_column

_TF_DTYPES = {"int64": "tf.int64", "float32": "tf.float32", "bytes": "tf.string"}


class _Format(str, enum.Enum):
    PYTHON = "python"
    TF_IO = "tf.io"


def check_names(ds: fr.Dataset, names: list[str] | None) -> list[str]:
    """Return the `names` of columns, which the dataset must have, or all names."""
    known = [name for name in ds.schema if isinstance(name, str)]
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(no_column(name, known, "the schema"))
    return known if names is None else names


def schema(
    paths: Paths,
    *,
    format: Annotated[
        _Format, typer.Option("--format", help="What to print.")
    ] = _Format.PYTHON,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Print the specs of the features, to paste into a program.

    They are inferred from up to 4,096 records, spread evenly over the files. The format
    "python" is for fastrec.open, "tf.io" for tf.io.parse_example.
    """
    files = files_of(paths, joins=False)
    indexed(files)  # behind a progress bar
    ds = fr.open(files)
    if columns is not None:
        ds = ds.select_columns(check_names(ds, names_in(columns)))
    specs, sections = ds.schema, ds.schema.sections
    out = console()
    if as_json:
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


def _tf_io(name: str | bytes, spec: Any) -> str:
    """Return an inferred spec as a call of tf.io."""
    if isinstance(spec, Record) or spec.key is not None or isinstance(name, bytes):
        raise fr.Error(
            f"cannot write column {name!r} as a feature of tf.io: fr.{spec!r}"
        )
    dtype = _TF_DTYPES[spec.dtype]
    if isinstance(spec, VarLen):
        return f"tf.io.VarLenFeature({dtype})"
    shape = list(spec.shape)
    if isinstance(spec, FixedLenSequence):
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype})"
    return f"tf.io.FixedLenFeature({shape}, {dtype})"
