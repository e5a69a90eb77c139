"""Goal: a misspelt feature is reported, not delivered as empty rows and defaults.

Method: small files with known names, read with names that are nearly right.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastrec as fr
from fastrec.compat import tf_io


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Write 3,000 records with an image and a label, and a caption from 1,500 on."""
    path = tmp_path / "images.tfrecord"
    with fr.Writer(path) as writer:
        for i in range(3000):
            row: dict[str, Any] = {"image": b"...", "label": i}
            writer.write(row if i < 1500 else {**row, "caption": b"a cat"})
    return path


def drained(dataset: fr.Dataset, **options: Any) -> None:
    for _ in dataset.loader(100, **options):
        pass


@pytest.mark.parametrize(
    "parse",
    [
        lambda record, spec: fr.parse_example([record], {"lable": spec}),
        lambda record, spec: tf_io.parse_single_example(record, {"lable": spec}),
    ],
)
def test_an_error_about_a_missing_feature_lists_the_names_of_the_record(
    parse: Callable[[bytes, fr.FixedLen], object],
) -> None:
    record = fr.encode_example({"image": b"...", "label": 3})
    with pytest.raises(fr.SchemaError) as caught:
        parse(record, fr.FixedLen((), "int64"))
    reason = caught.value.reason
    assert reason.endswith("the record has 'image', 'label'; did you mean 'label'?")
    assert "default=" not in reason
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_error_about_a_missing_feature_advises_a_default_if_no_name_is_similar() -> (
    None
):
    record = fr.encode_example({"image": b"..."})
    with pytest.raises(fr.SchemaError, match="the record has 'image' \\(pass default="):
        tf_io.parse_single_example(record, {"weight": fr.FixedLen((), "float32")})
    with pytest.raises(fr.SchemaError, match="the record has 'Weight'; did you mean"):
        tf_io.parse_single_example(
            fr.encode_example({"Weight": 1.0}), {"WEIGHT": fr.FixedLen(())}
        )


def test_a_long_list_of_names_is_truncated() -> None:
    record = fr.encode_example({f"f{i:05}": i for i in range(5000)})
    with pytest.raises(fr.SchemaError) as caught:
        tf_io.parse_single_example(record, {"x": fr.FixedLen((), "int64")})
    assert "'f00019' and 980 more" in caught.value.reason


def test_a_missing_feature_list_names_the_lists_of_the_record() -> None:
    record = fr.encode_sequence_example(
        context={"id": 1}, feature_lists={"frames": [[1], [2]]}
    )
    with pytest.raises(fr.SchemaError, match="has 'frames'; did you mean 'frames'"):
        tf_io.parse_single_sequence_example(
            record,
            sequence_features={
                "frame": fr.FixedLenSequence((), "int64", allow_missing=False)
            },
        )


def test_an_error_of_a_file_lists_the_names_and_the_place(images: Path) -> None:
    ds = fr.open(images, features={"lable": fr.FixedLen((), "int64")})
    with pytest.raises(fr.SchemaError, match=r"did you mean 'label'\? - at .*record 0"):
        next(iter(ds.loader(8)))


@pytest.mark.parametrize(
    "spec",
    [
        fr.VarLen("int64"),
        fr.FixedLen((), "int64", default=0),
        fr.FixedLenSequence((), "int64"),
        fr.Raw((), "int64", default=0),
        fr.Ragged("int64"),
    ],
)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_feature_missing_in_the_first_records_warns_once(
    images: Path, spec: object, shuffle: bool, num_threads: int
) -> None:
    ds = fr.open(images, features={"label": "int64", "lable": spec})
    loader = ds.loader(100, shuffle=shuffle, num_threads=num_threads)
    with pytest.warns(fr.MissingFeatureWarning) as caught:
        n_batches = sum(1 for _ in loader)
    assert n_batches == 30
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "'lable'" in text
    assert "the first 1,000 records" in text
    assert "'image', 'label'" in text
    assert "did you mean 'label'?" in text
    for _ in loader:  # any warning would be an error here
        pass
    drained(ds)


def test_a_shorter_epoch_warns_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "short.tfrecord"
    fr.write(path, {"label": list(range(12))})
    ds = fr.open(path, features={"x": fr.VarLen("int64", key="lable")})
    batches = iter(ds.loader(6))
    next(batches)
    next(batches)
    with (
        pytest.warns(
            fr.MissingFeatureWarning, match="'x' .* first 12 records .* 'lable'"
        ),
        pytest.raises(StopIteration),
    ):
        next(batches)


def test_rows_by_number_are_watched_too(images: Path) -> None:
    ds = fr.open(images, features={"lable": fr.VarLen("int64")})
    ds[0:900]
    with pytest.warns(fr.MissingFeatureWarning, match="did you mean 'label'"):
        ds[900:1000]


def test_a_stream_is_watched_too(images: Path, tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    records = fr.open(images).records
    with fr.Writer(path, compression="GZIP") as writer:
        for i in range(1200):
            writer.write_record(records[i])
    ds = fr.open(path, features={"lable": fr.VarLen("int64")})
    with pytest.warns(fr.MissingFeatureWarning, match="did you mean 'label'"):
        drained(ds)


def test_feature_lists_and_contexts_are_watched_too(tmp_path: Path) -> None:
    path = tmp_path / "sequences.tfrecord"
    with fr.Writer(path) as writer:
        for i in range(10):
            record = fr.encode_sequence_example(
                context={"id": i}, feature_lists={"frames": [[1], [2]]}
            )
            writer.write_record(record)
    ds = fr.open(
        path,
        context_features={"frames_": fr.VarLen("int64", key="frames")},
        sequence_features={"id": fr.VarLen("int64")},
    )
    with pytest.warns(fr.MissingFeatureWarning) as caught:
        drained(ds)
    assert "has 'id'\n" in str(caught[0].message)
    assert str(caught[0].message).endswith("has 'frames'")


def test_a_feature_of_some_records_does_not_warn(images: Path, tmp_path: Path) -> None:
    path = tmp_path / "rare.tfrecord"
    with fr.Writer(path) as writer:
        for i in range(2000):
            writer.write({"x": i} if i != 999 else {"x": i, "rare": 1})
    drained(fr.open(path, features={"rare": fr.VarLen("int64")}))
    # Neither does an epoch that is too short, however often it is read,
    few = fr.open(images, features={"caption": fr.VarLen("bytes")}).select(range(9))
    for _ in range(3):
        drained(few)
    # nor a feature without a kind or values, whose key is present,
    fr.write(
        tmp_path / "empty.tfrecord", {"x": fr.RaggedArray.from_list([[], []], "int64")}
    )
    drained(fr.open(tmp_path / "empty.tfrecord", features={"x": fr.VarLen("int64")}))
    # nor an inferred feature, which some record has.
    drained(fr.open(images))
    drained(fr.open(images, features=["caption"]))
    drained(fr.open(images).select_columns(["caption"]))


def test_rows_that_cannot_be_read_are_not_watched(tmp_path: Path) -> None:
    path = tmp_path / "mixed.tfrecord"
    with fr.Writer(path) as writer:
        for i in range(200):
            writer.write({"y": 1} if i % 2 else {"x": i, "tag": b"a"})
    features = {"x": fr.FixedLen((), "int64"), "tag": fr.VarLen("bytes")}
    drained(fr.open(path, features=features, on_error="skip"))
    drained(fr.open(path, features=features, on_error="mask"))


def test_the_warning_can_be_silenced_by_category(images: Path) -> None:
    ds = fr.open(images, features={"lable": fr.VarLen("int64")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fr.MissingFeatureWarning)
        drained(ds)


def test_a_warning_that_is_an_error_costs_no_batch(images: Path) -> None:
    ds = fr.open(images, features={"label": "int64", "lable": fr.VarLen("int64")})
    batches, labels = iter(ds.loader(100)), []
    n_raised = 0
    while True:
        try:
            batch = next(batches)
        except fr.MissingFeatureWarning:
            n_raised += 1
            continue
        except StopIteration:
            break
        labels += batch["label"].tolist()
    assert n_raised == 1
    assert labels == list(range(3000))
