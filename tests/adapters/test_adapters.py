"""What the adapters of frameworks have in common.

Goal
    An adapter is imported when it is asked for; without its framework, the error says
    what to install. What real files hold arrives in every framework.
Method
    Frameworks that are hidden from imports; the files of the test data folder, through
    each adapter and through the loader alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from children import run_python
from columns import Untyped

PACKAGES = {
    "grain": "grain",
    "jax": "jax",
    "keras": "keras",
    "polars": "polars",
    "ray": "ray",
    "tf": "tensorflow",
    "torch": "torch",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_without_its_framework_an_adapter_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = PACKAGES[name]
    for module in list(sys.modules):
        if module == package or module.startswith((f"{package}.", f"fastrec.{name}")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(vars(fr), name, raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"fastrec.{name}")
    assert f'pip install "fastrec-io[{name}]"' in str(caught.value)
    assert str(caught.value.name).partition(".")[0] == package
    # An exception cannot be both: they differ in the layout of their memory.
    with pytest.raises(AttributeError) as missing:
        getattr(fr, name)
    assert str(missing.value) == str(caught.value)
    assert not hasattr(fr, name)


def test_without_protobuf_tf_train_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "fastrec.compat.tf_train", raising=False)
    monkeypatch.delattr(fr.compat, "tf_train", raising=False)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    install = r'protobuf, which is not installed: pip install "fastrec-io\[compat\]"'
    with pytest.raises(ModuleNotFoundError, match=install):
        importlib.import_module("fastrec.compat.tf_train")
    with pytest.raises(AttributeError, match=install):
        fr.compat.tf_train  # noqa: B018


def test_the_package_lists_its_adapters_and_has_no_others() -> None:
    assert set(dir(fr)) == {
        *fr.__all__,
        *PACKAGES,
        "arrow",
        "compat",
        "convert",
        "samplers",
    }
    assert importlib.import_module("fastrec.arrow") is fr.arrow
    unknown: Untyped = fr
    with pytest.raises(AttributeError, match="no attribute 'theano'"):
        unknown.theano  # noqa: B018


BARE = """
import inspect, pydoc, rlcompleter, sys

for name in {hidden!r}:
    sys.modules[name] = None
import fastrec

loaded = {{name for name in sys.modules if name.startswith("fastrec.")}}
assert not loaded & {{f"fastrec.{{name}}" for name in {adapters!r}}}, loaded
text = pydoc.render_doc(fastrec, renderer=pydoc.plaintext)
assert "class Dataset" in text
assert "read_records(" in text
members = dict(inspect.getmembers(fastrec))
public = set(fastrec.__all__) | {{*{adapters!r}, "arrow", "compat", "convert", "samplers"}}
assert set(members) - public <= set(dir(type(fastrec))), "getmembers has public names"
assert set(dir(fastrec)) == public
completer = rlcompleter.Completer({{"fastrec": fastrec}})
completed = [completer.complete("fastrec.con", i) for i in range(9)]
names = [name.partition("(")[0] for name in completed if name is not None]
assert names == ["fastrec.concat", "fastrec.concat_batches", "fastrec.convert"], names
assert members["open"] is fastrec.open
for name in {adapters!r}:
    assert not hasattr(fastrec, name), name
    assert name in dir(fastrec)
assert fastrec.convert.write_tfrecords
assert fastrec.compat.tf_io.FixedLenFeature
assert not hasattr(fastrec.compat, "tf_train")
assert fastrec.compat.dali_tfrecord.FixedLenFeature
assert fastrec.samplers.weighted
assert fastrec.arrow.RecordBatch
"""


def test_help_and_members_need_no_extra() -> None:
    hidden = [
        *PACKAGES.values(),
        "google.protobuf",
        "pyarrow",
        "PIL",
        "isal",
        "ml_dtypes",
        "typer",
    ]
    program = BARE.format(hidden=hidden, adapters=list(PACKAGES))
    run_python(program)


# Real files.


def by_torch(loader: fr.Loader) -> Untyped:
    pytest.importorskip("torch")
    for batch in fr.torch.loader(loader):
        yield {
            name: column.values.numpy() if hasattr(column, "offsets") else column
            for name, column in batch.items()
            if not isinstance(column, fr.BytesArray)
        }


def by_arrow(loader: fr.Loader) -> Untyped:
    pyarrow = pytest.importorskip("pyarrow")
    for batch in pyarrow.RecordBatchReader.from_stream(loader):
        yield {
            name: np.asarray(flat(column))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }


def flat(column: Untyped) -> Untyped:
    while hasattr(column, "flatten") and hasattr(column.type, "value_type"):
        column = column.flatten()
    return column


def numbers(column: Untyped) -> Untyped:
    """The numbers of a column of a NumPy batch, one after the other; None of strings."""
    while isinstance(column, fr.RaggedArray):
        column = column.values
    return None if isinstance(column, fr.BytesArray) else column.reshape(-1)


@pytest.mark.parametrize(
    "feed",
    [
        pytest.param(by_torch, marks=pytest.mark.frameworks),
        by_arrow,
    ],
)
@pytest.mark.parametrize("name", ["mnist-1000.tfrecord", "penguin-train.gz", "taxi"])
def test_real_files_arrive_as_they_are(
    testdata: Path, name: str, feed: Callable[[fr.Loader], Untyped]
) -> None:
    ds = fr.open(sorted(testdata.glob(f"{name}*")))
    n_compared = 0
    for batch, plain in zip(feed(ds.loader(100)), ds.loader(100), strict=True):
        for column in plain:
            expected = numbers(plain[column])
            if expected is not None and column in batch:
                found = np.asarray(batch[column]).reshape(-1)
                assert np.array_equal(found, expected), column
                n_compared += 1
    assert n_compared > 0
