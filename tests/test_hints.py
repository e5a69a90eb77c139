"""Hints: the names that people try first, of other libraries, are answered.

Goal
    A name that fastrec does not have is an error that says what to write, where another
    library has the name; and what it says exists. `hasattr` and pickling stay as usual.
Method
    A list of names, and the hints of the table parsed for names of fastrec.
"""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastrec as fr
from columns import Untyped, Write, open_dataset
from fastrec import hints
from numbered import SPEC, record
from oracle import tfrecord_file

# Without their types, which refuse these calls.
DATASET: Untyped = fr.Dataset
PER_ROW: Untyped = fr.per_row


@pytest.fixture
def ds(write: Write) -> Untyped:
    return open_dataset(
        write(tfrecord_file([record(n) for n in range(4)])), features=SPEC
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("map", "transform=function in ds.loader()"),
        ("batch", "use ds.loader(batch_size)"),
        ("shuffle", "shuffle=True in ds.loader()"),
        ("take", "ds.select(range(n))"),
        ("prefetch", "reads ahead"),
        ("repeat", "ds.loader(batch_size).repeat(epochs)"),
    ],
)
def test_a_method_of_tf_data_names_what_to_use(
    ds: Untyped, name: str, hint: str
) -> None:
    with pytest.raises(AttributeError, match=re.escape(hint)) as caught:
        getattr(ds, name)
    assert str(caught.value).startswith(f"'Dataset' object has no attribute {name!r}; ")
    assert not hasattr(ds, name)
    assert name not in dir(ds)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TFRecordDataset", "use fr.open(paths)"),
        ("FixedLenFeature", "use fr.FixedLen(shape, dtype)"),
    ],
)
def test_a_name_of_tensorflow_names_what_to_use(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(fr, name)
    assert not hasattr(fr, name)


def test_a_misspelled_name_names_the_right_one(ds: Untyped) -> None:
    for owner, name, right in [
        (fr, "Fixedlen", "FixedLen"),
        (ds, "colum_names", "column_names"),
        (ds.loader(2), "stat", "stats"),
    ]:
        with pytest.raises(AttributeError, match=rf"; did you mean {right}\?$"):
            getattr(owner, name)


def test_a_column_is_not_an_attribute(ds: Untyped) -> None:
    with pytest.raises(AttributeError, match=re.escape('batch["label"] in ds.loader')):
        ds.label  # noqa: B018


def test_a_subclass_has_the_hints(ds: Untyped) -> None:
    class Mine(fr.Dataset):
        pass

    mine: Untyped = Mine(ds._source)
    with pytest.raises(AttributeError, match=r"'Mine' object .*use ds\.loader"):
        mine.batch  # noqa: B018


def test_the_package_of_replacements_lists_its_modules() -> None:
    assert dir(fr.compat) == sorted(fr.compat.__all__)


@pytest.mark.frameworks
def test_torch_lists_its_names_and_answers_others() -> None:
    pytest.importorskip("torch")
    adapter: Untyped = fr.torch
    assert dir(adapter) == sorted(adapter.__all__)
    with pytest.raises(
        AttributeError, match=r"use fr\.torch\.loader\(ds, batch_size\)"
    ):
        adapter.DataLoader  # noqa: B018


def test_an_unknown_name_is_a_plain_error(ds: Untyped) -> None:
    for owner in (ds, ds.loader(2), fr):
        with pytest.raises(AttributeError, match=r"has no attribute 'theano'$"):
            owner.theano  # noqa: B018


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda ds: ds["n"], r"write ds\.select_columns\(\['n'\]\)\[:\]\['n'\]"),
        (
            lambda _: DATASET("a.tfrecord"),
            r"open a Dataset with fastrec\.open\(paths\)",
        ),
        (lambda ds: ds.loader(batch=2), r"no option 'batch'; use batch_size="),
        (
            lambda _: PER_ROW(len),
            r'per_row\(\) requires out=\{"image": fr\.FixedLen',
        ),
    ],
)
def test_a_call_that_people_try_first_names_what_to_write(
    ds: Untyped, call: Callable[[Any], object], hint: str
) -> None:
    with pytest.raises(TypeError, match=hint):
        call(ds)


def test_hints_name_what_exists(ds: Untyped) -> None:
    owners = {"fr": fr, "ds": ds}
    n_names = 0
    for table in hints._HINTS.values():
        for hint in table.values():
            for owner, path in re.findall(r"\b(fr|ds)\.((?:\w+\.)*\w+)", hint):
                found: Untyped = owners[owner]
                if path.split(".")[0] in ("tf", "keras", "torch"):
                    continue  # not installed everywhere
                for name in path.split("."):
                    found = getattr(found, name)
                n_names += 1
    assert n_names > 50


def test_the_error_of_a_property_is_not_replaced(tmp_path: Path) -> None:
    class Broken(fr.Dataset):
        @property
        def nbytes(self) -> int:
            msg = "from the property"
            raise AttributeError(msg)

    (tmp_path / "a.tfrecord").touch()
    broken = Broken(fr.open(tmp_path / "a.tfrecord")._source)
    with pytest.raises(AttributeError, match=r"^from the property$"):
        _ = broken.nbytes


def test_copies_and_pickles_are_as_before(ds: Untyped) -> None:
    for thing in (ds, ds.loader(2)):
        assert len(copy.copy(thing)) == len(pickle.loads(pickle.dumps(thing)))
