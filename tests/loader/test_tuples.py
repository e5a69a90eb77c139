"""Batches as tuples, and consecutive epochs.

Goal
    ``loader.tuples(...)`` yields columns of the same batches and moves the same state.
    Misspelt names are errors that lose no batch. ``loader.repeat()`` yields epochs.
Method
    Tuples compared with the dicts of an equal loader.
"""

from __future__ import annotations

import itertools

import pytest

from columns import Untyped
from fastrec.loader.prefetch import Conversion, with_conversion
from numbered import N


@pytest.mark.parametrize("transform", [None, dict])
def test_tuples_have_the_columns_in_the_order_of_the_names(
    ds: Untyped, transform: Untyped
) -> None:
    loader = ds.loader(5, shuffle=True, transform=transform)
    pairs = loader.tuples("words", "n")
    assert len(pairs) == len(loader)
    for _ in range(2):
        epoch = loader.epoch
        for step, (words, n) in enumerate(pairs):
            want = loader.batch(step, epoch=epoch)
            assert n.tolist() == want["n"].tolist()
            assert words.tolist() == want["words"].tolist()
            assert (loader.epoch, loader.step) == (epoch, step + 1)
        assert (loader.epoch, loader.step) == (epoch + 1, 0)
    assert [n.tolist() for (n,) in ds.loader(20).tuples("n")] == [
        list(range(i, min(i + 20, N))) for i in range(0, N, 20)
    ]


def test_a_loader_of_two_columns_yields_dicts(ds: Untyped) -> None:
    batch = next(iter(ds.select_columns(["n", "words"]).loader(5)))
    assert type(batch) is dict


def test_tuples_resume_where_the_loader_is(ds: Untyped) -> None:
    loader = ds.loader(5, shuffle=True)
    numbers = loader.tuples("n")
    want = [n.tolist() for (n,) in numbers]
    loader.set_epoch(0)
    loader.seek(0)
    first = [n.tolist() for (n,) in itertools.islice(numbers, 3)]
    state = loader.state_dict()
    other = ds.loader(5, shuffle=True)
    other.load_state_dict(state)
    assert first + [n.tolist() for (n,) in other.tuples("n")] == want
    assert other.stats.n_batches == len(want) - 3


def test_a_missing_column_is_an_error_at_once(ds: Untyped) -> None:
    loader = ds.loader(5)
    with pytest.raises(KeyError, match=r"no column 'word'; .*did you mean 'words'"):
        loader.tuples("n", "word")
    with pytest.raises(TypeError, match="requires column names"):
        loader.tuples()
    with pytest.raises(TypeError, match="requires column names"):
        loader.tuples(["n", "words"])


def test_a_column_missing_after_transforms_loses_no_batch(ds: Untyped) -> None:
    loader = ds.loader(5, transform=lambda batch: {"m": batch["n"]})
    with pytest.raises(KeyError, match="no column 'n'"):
        next(iter(loader.tuples("n")))
    assert loader.step == 0
    (m,) = next(iter(loader.tuples("m")))
    assert m.tolist() == list(range(5))


def test_tuples_have_converted_columns(ds: Untyped) -> None:
    loader = with_conversion(
        ds.loader(5), Conversion(lambda batch: {"text": batch["n"].tolist()}, 2)
    )
    assert next(text for (text,) in loader.tuples("text")) == [0, 1, 2, 3, 4]


@pytest.mark.frameworks
def test_tuples_of_tensors(ds: Untyped) -> None:
    torch = pytest.importorskip("torch")
    import fastrec.torch

    loader = fastrec.torch.loader(ds.loader(5))
    for n, pixels in loader.tuples("n", "pixels"):
        assert isinstance(n, torch.Tensor)
        assert isinstance(pixels, torch.Tensor)


def test_repeat_can_be_stopped_and_resumed(ds: Untyped) -> None:
    loader = ds.loader(20)
    batches = loader.repeat(2)
    assert [next(batches)["n"][0] for _ in range(4)] == [0, 20, 40, 0]
    assert (loader.epoch, loader.step) == (1, 1)
    assert [batch["n"][0] for batch in batches] == [20, 40]
    assert list(batches) == []
    with pytest.raises(ValueError, match="cannot repeat an epoch"):
        next(ds.select([]).loader(20).repeat())
