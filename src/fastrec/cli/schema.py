"""``fastrec schema``: print the specs of the features, to paste into a program."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer
from typer import echo

import fastrec as fr
from fastrec.cli.arguments import AsJson, Columns, Paths, names_in
from fastrec.cli.files import opened
from fastrec.cli.terminal import print_json
from fastrec.hints import no_column

_TF_DTYPES = {"int64": "tf.int64", "float32": "tf.float32", "bytes": "tf.string"}
_TF_SPECS = (fr.FixedLen, fr.FixedLenSequence, fr.VarLen)


class _Format(str, enum.Enum):
    PYTHON = "python"
    TF_IO = "tf.io"


def check_names(ds: fr.Dataset, names: list[str] | None) -> list[str]:
    """Check that columns `names` exist, and return `names`; None means all columns."""
    known = [name for name in ds.schema if isinstance(name, str)]
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(no_column(name, known, "the schema"))
    return known if names is None else names


def schema(
    paths: Paths,
    *,
    format: Annotated[_Format, typer.Option(help="Output format.")] = _Format.PYTHON,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Print the specs of the features, to paste into a program.

    The specs are inferred from up to 4,096 records, spread evenly over the files. Use
    the format "python" with fastrec.open, and "tf.io" with tf.io.parse_example.
    """
    ds = opened(paths)
    if columns is not None:
        ds = ds.select_columns(check_names(ds, names_in(columns)))
    specs, sections = ds.schema, ds.schema.sections
    if as_json:
        print_json({name: _fields(part) for name, part in sections.items()})
    elif format is _Format.TF_IO:
        echo("import tensorflow as tf")
        for name, part in sections.items():
            echo(f"\n{name} = {{")
            for key, spec in part.items():
                echo(f"    {key!r}: {_tf_io(key, spec)},")
            echo("}")
    else:
        name = "features" if "features" in sections else "options"
        echo(f"import fastrec as fr\n\n{name} = {specs!r}")


def _fields(specs: dict[str | bytes, Any]) -> dict[str | bytes, object]:
    """Return the class name and arguments of each spec, for JSON output."""
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
    """Return source code of the tf.io call for the inferred spec of column `name`."""
    is_known = isinstance(spec, _TF_SPECS) and isinstance(name, str)
    if not is_known or spec.key is not None:
        raise fr.Error(f"cannot write column {name!r} as a tf.io feature: fr.{spec!r}")
    shape = "" if isinstance(spec, fr.VarLen) else f"{list(spec.shape)}, "
    return f"tf.io.{type(spec).__name__}Feature({shape}{_TF_DTYPES[spec.dtype]})"
