"""fastrec.torch.loader: tensors on the CPU, and on a device.

Goal
    Tensors share the memory of the batch on the CPU; to a device, columns that share a
    block go in one copy, from memory of torch's, one batch ahead. No block is decoded
    into before its copy was made, however late that is, and no batch is lost, repeated or
    counted before it is delivered.
Method
    A device that is none: its copies are made when somebody waits for them and not
    before, and read what is then in the memory that they were begun for. So a block that
    was used again too early shows in the values. Page-locked memory is memory of torch's
    that is not locked, since there may be no device to lock it for.
"""

from __future__ import annotations

import gc
import pickle

import numpy as np
import numpy.typing as npt
import pytest

import fastrec as fr
from columns import Untyped
from counted_calls import MAX_CALLS, n_calls_of

torch = pytest.importorskip("torch")

from fastrec.torch import loading

pytestmark = pytest.mark.frameworks

N = 300
BATCH_SIZE = 16
LARGE = 20_000  # of uint8: 16 of them have a block of their own

SPEC = {
    "n": fr.FixedLen((), "int64"),
    "half": fr.FixedLen((), "float32"),
    "is_even": fr.FixedLen((), "bool"),
    "image": fr.Raw((LARGE,), "uint8"),
    "tags": fr.VarLen("int64"),
    "name": fr.FixedLen((), "bytes"),
}


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> fr.Dataset:
    path = tmp_path_factory.mktemp("torch") / "a.tfrecord"
    n = np.arange(N)
    columns = {
        "n": n,
        "half": n.astype("float32") / 2,
        "is_even": n % 2 == 0,
        "image": np.repeat((n % 251).astype("uint8"), LARGE).reshape(N, LARGE),
        "tags": [list(range(i % 7)) for i in range(N)],
        "name": [f"record {i}" for i in range(N)],
    }
    fr.write(path, columns, features=SPEC)
    return fr.open(path, features=SPEC)


def loader_of(ds: fr.Dataset, **options: Untyped) -> fr.Loader:
    """A loader with as few blocks as there can be."""
    return ds.loader(BATCH_SIZE, shuffle=True, num_threads=1, prefetch=1, **options)


def rows(batch: Untyped) -> dict[str, Untyped]:
    """The values of a batch of NumPy arrays or of tensors, as lists."""
    found = {}
    for name, column in batch.items():
        if isinstance(column, fr.RaggedArray):
            found[name] = column.tolist()
        elif hasattr(column, "offsets") and not isinstance(column, fr.BytesArray):
            found[name] = [part.tolist() for part in column.nested().unbind()]
        elif name == "image":
            found[name] = [np.asarray(column).min(1), np.asarray(column).max(1)]
            found[name] = [part.tolist() for part in found[name]]
        else:
            found[name] = column.tolist()
    return found


class LateSide:
    """A device whose copies are as late as they may be."""

    def __init__(self) -> None:
        self.n_begun = 0
        self.begun: list[tuple[Untyped, Untyped]] = []  # that are still to be made
        self.n_made = 0
        self.joined: list[int] = []
        self.failure: BaseException | None = None

    def begin(self) -> None:
        pass

    def copied(self, source: Untyped) -> Untyped:
        target = torch.full_like(source, 77)
        self.begun.append((source, target))
        self.n_begun += 1
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return target

    def mark(self) -> LateEvent:
        return LateEvent(self, self.n_begun)

    def join(self, event: LateEvent, copies: list[Untyped]) -> None:
        assert copies
        self.joined.append(event.number)

    def finish(self) -> None:
        self.make(self.n_begun)

    def make(self, number: int) -> None:
        while self.n_made < number:
            source, target = self.begun.pop(0)
            target.copy_(source)
            self.n_made += 1


class LateEvent:
    def __init__(self, side: LateSide, number: int) -> None:
        self.side = side
        self.number = number

    def query(self) -> bool:
        return self.side.n_made >= self.number

    def synchronize(self) -> None:
        self.side.make(self.number)


def unlocked(n_bytes: int) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = torch.empty(n_bytes, dtype=torch.uint8).numpy()
    return found


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> LateSide:
    """What is then the CUDA device."""
    made = LateSide()
    monkeypatch.setattr(loading, "page_locked", unlocked)
    monkeypatch.setattr(loading, "SideStream", lambda _device: made)
    return made


def on_late_device(ds: fr.Dataset, **options: Untyped) -> fr.Loader:
    return fr.torch.loader(loader_of(ds, **options), device="cuda")


# On the CPU.


def test_a_batch_of_tensors_runs_few_python_functions(
    ds: fr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests may have made an Accelerator, which is told of each batch.
    monkeypatch.setattr("fastrec.torch.accelerate._accelerate", lambda: None)
    some = ds.select_columns(["n", "image"])
    batches = iter(fr.torch.loader(some, 4, num_threads=1))
    next(batches)
    assert n_calls_of(batches.__next__) <= MAX_CALLS


def test_tensors_stay_while_the_loop_goes_on(ds: fr.Dataset) -> None:
    held = list(fr.torch.loader(loader_of(ds)))
    wanted = [rows(batch) for batch in loader_of(ds)]
    assert [rows(batch) for batch in held] == wanted
    assert len({batch["image"].data_ptr() for batch in held}) == len(held)


def test_tensors_share_the_memory_of_the_batch(ds: fr.Dataset) -> None:
    feeding = fr.torch.loader(ds.loader(BATCH_SIZE))
    assert feeding._options.conversion is not None
    batch: Untyped = ds[:BATCH_SIZE]
    columns = feeding._options.conversion.convert(batch)
    for name in ("n", "half", "is_even", "image"):
        assert columns[name].data_ptr() == batch[name].ctypes.data
    assert columns["tags"].values.data_ptr() == batch["tags"].values.ctypes.data
    assert columns["name"] is batch["name"]


def test_rows_of_any_lengths_may_be_nested_tensors(
    ds: fr.Dataset, side: LateSide
) -> None:
    wanted = ds[:BATCH_SIZE]["tags"].tolist()
    for device in (None, "cuda"):
        loader = fr.torch.loader(ds.loader(BATCH_SIZE), device=device, ragged="nested")
        tags = next(iter(loader))["tags"]
        side.finish()
        assert tags.is_nested
        assert [part.tolist() for part in tags.unbind()] == wanted
    with pytest.raises(ValueError, match='ragged must be "offsets" or "nested"'):
        fr.torch.loader(ds.loader(BATCH_SIZE), ragged="padded")  # type: ignore[arg-type]


def test_a_loader_of_tensors_can_be_pickled(ds: fr.Dataset) -> None:
    feeding = fr.torch.loader(loader_of(ds))
    running = iter(feeding)
    next(running)
    rest = [rows(batch) for batch in pickle.loads(pickle.dumps(feeding))]
    assert rest == [rows(batch) for batch in running]


def test_other_devices_get_one_copy_for_each_block(ds: fr.Dataset) -> None:
    batch = next(iter(fr.torch.loader(ds.loader(BATCH_SIZE), device="meta")))
    assert batch["image"].device.type == "meta"
    assert batch["image"].shape == (BATCH_SIZE, LARGE)
    assert batch["n"].dtype == torch.int64
    assert batch["tags"].values.device.type == "meta"
    assert batch["name"].tolist() == ds[:BATCH_SIZE]["name"].tolist()


# Without a device for which memory could be locked.


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("options", [{"device": "cuda"}, {"pin_memory": True}])
def test_what_torch_has_no_device_for_is_refused_at_once(
    ds: fr.Dataset, options: dict[str, Untyped]
) -> None:
    with pytest.raises(RuntimeError, match=r"pin|NVIDIA"):
        fr.torch.loader(ds.loader(BATCH_SIZE), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_gpu_is_named_and_not_an_option_that_was_not_passed(
    ds: fr.Dataset,
) -> None:
    with pytest.raises(RuntimeError) as caught:
        fr.torch.loader(ds.loader(BATCH_SIZE), device="cuda:1")
    said = str(caught.value)
    assert "cannot copy batches to device 'cuda:1'" in said
    assert "leave out the device" in said
    assert "pin_memory" not in said


def test_a_dataset_is_read_by_a_loader_with_the_options(ds: fr.Dataset) -> None:
    made = fr.torch.loader(ds, batch_size=BATCH_SIZE, shuffle=True, seed=1)
    plain = ds.loader(BATCH_SIZE, shuffle=True, seed=1)
    assert [rows(batch) for batch in made] == [rows(batch) for batch in plain]
    with pytest.raises(
        TypeError, match=r"only with a Dataset, got a Loader and batch_size"
    ):
        fr.torch.loader(plain, batch_size=4)
    with pytest.raises(TypeError, match=r"did you mean shuffle="):
        fr.torch.loader(ds, batch_size=4, shufle=True)  # type: ignore[call-arg]


def test_a_dataset_without_a_batch_size_is_refused(ds: fr.Dataset) -> None:
    with pytest.raises(TypeError, match="requires exactly one of batch_size"):
        fr.torch.loader(ds)
    not_a_dataset: Untyped = "a.tfrecord"
    with pytest.raises(
        TypeError,
        match=r"requires a fastrec\.Dataset, with loader options, or a Loader, got",
    ):
        fr.torch.loader(not_a_dataset, batch_size=4)


# Page-locked memory without a device.


def test_page_locked_memory_is_used_for_one_batch(
    ds: fr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {}  # by address, which nobody else gets as long as it is kept
    n_pinned = 0

    def allocate(n_bytes: int) -> npt.NDArray[np.uint8]:
        memory = unlocked(n_bytes)
        made[memory.ctypes.data] = memory
        return memory

    def pin(tensor: Untyped) -> Untyped:
        nonlocal n_pinned
        n_pinned += 1
        return tensor.clone()

    monkeypatch.setattr(loading, "page_locked", allocate)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    feeding = fr.torch.loader(loader_of(ds), pin_memory=True)
    n_pinned_late = 0
    for epoch in range(5):
        for step, batch in enumerate(feeding):
            assert rows(batch) == rows(loader_of(ds).batch(step, epoch))
            begin = batch["image"].untyped_storage().data_ptr()
            n_pinned_late += begin not in made
            batch["image"].fill_(0)  # as a copy under way would: nobody else sees it
    assert n_pinned > 0, "the first batches come before there is such memory"
    # A block that is missing is made for the batches to come. Of each size, the loader
    # takes at most two between two of them: one in the ring, and the one after it.
    n_sizes = 2  # the last batch of an epoch is shorter
    assert n_pinned_late <= 2 * n_sizes


# On a device.


def test_copies_see_what_was_decoded_however_late_they_are(
    ds: fr.Dataset, side: LateSide
) -> None:
    feeding = on_late_device(ds)
    for epoch in range(2):
        held = list(feeding)
        side.finish()
        wanted = [rows(loader_of(ds).batch(step, epoch)) for step in range(len(held))]
        assert [rows(batch) for batch in held] == wanted
    n_idle = feeding._pool.n_idle
    assert n_idle < 2 * len(held), "blocks are used again"


def test_columns_that_share_a_block_cross_in_one_copy(
    ds: fr.Dataset, side: LateSide
) -> None:
    feeding = on_late_device(ds)
    for _ in feeding:  # until all memory is the allocator's
        pass
    batch = next(iter(feeding))
    n_before = side.n_begun
    next(iter(feeding))
    n_blocks = len({array.base.address for array in arrays_of(ds[:BATCH_SIZE])})
    assert n_blocks < len(SPEC)
    assert (side.n_begun - n_before) % n_blocks == 0
    assert side.n_begun - n_before == 2 * n_blocks, "one batch, and one ahead"
    assert rows(batch).keys() == SPEC.keys()


def arrays_of(batch: Untyped) -> list[Untyped]:
    """The arrays of which tensors are made."""
    tags = batch["tags"]
    numbers = [column for column in batch.values() if isinstance(column, np.ndarray)]
    return [*numbers, tags.values, tags.row_splits]


def test_state_counts_what_was_delivered(ds: fr.Dataset, side: LateSide) -> None:
    feeding, plain = on_late_device(ds), loader_of(ds)
    states = []
    for _, _ in zip(range(5), feeding, strict=False):
        states.append(feeding.state_dict())
    assert side.n_begun > 0
    wanted = []
    for _, _ in zip(range(5), plain, strict=False):
        wanted.append(plain.state_dict())
    assert states == wanted
    resumed = on_late_device(ds)
    resumed.load_state_dict(states[2])
    rest = list(resumed)
    side.finish()
    plain.load_state_dict(states[2])
    assert [rows(batch) for batch in rest] == [rows(batch) for batch in plain]


def test_a_signal_while_copies_are_begun_loses_no_batch(
    ds: fr.Dataset, side: LateSide
) -> None:
    feeding = on_late_device(ds)
    running = iter(feeding)
    held = []
    for i in range(len(feeding)):
        if i % 3 == 1:
            side.failure = KeyboardInterrupt()
        try:
            held.append(next(running))
        except KeyboardInterrupt:
            held.append(next(running))
    assert next(running, None) is None
    side.finish()
    assert [rows(b) for b in held] == [rows(b) for b in loader_of(ds)]


def test_memory_is_kept_until_its_copy_was_made_whoever_lets_go(
    ds: fr.Dataset, side: LateSide
) -> None:
    feeding = on_late_device(ds)
    running = iter(feeding)
    held = [next(running), next(running)]
    wanted = [rows(batch) for _, batch in zip(range(2), loader_of(ds), strict=False)]
    del running
    gc.collect()
    assert side.n_made < side.n_begun
    del feeding
    gc.collect()
    assert side.n_made == side.n_begun, "before the pool goes, copies are waited for"
    assert [rows(batch) for batch in held] == wanted


def test_arrays_that_a_transform_made_cross_by_themselves(
    ds: fr.Dataset, side: LateSide
) -> None:
    kept: dict[str, Untyped] = {}

    def transform(batch: Untyped) -> Untyped:
        n_rows = len(batch["n"])
        kept.clear()  # one dict for all batches: who has it does not keep the arrays
        kept["twice"] = batch["n"] * 2
        kept["in no piece"] = batch["image"][:, 3:-1]
        kept["at no multiple"] = batch["image"].reshape(-1)[3 : 3 + 8 * n_rows]
        kept["at no multiple"] = kept["at no multiple"].view("int64")
        kept["part"] = batch["is_even"]
        return kept

    loader = ds.with_transform(transform).loader(
        BATCH_SIZE, shuffle=True, num_threads=0, prefetch=1, transform_threads=0
    )
    held = list(fr.torch.loader(loader, device="cuda"))
    side.finish()
    for batch, plain in zip(held, loader_of(ds), strict=True):
        wanted = transform(plain)
        assert batch.keys() == wanted.keys()
        for name, column in wanted.items():
            assert np.array_equal(batch[name].numpy(), column), name


def test_the_modes_of_torch_are_those_of_the_loop_and_not_of_the_batch_before(
    ds: fr.Dataset, side: LateSide
) -> None:
    running: Untyped = iter(on_late_device(ds))
    with torch.inference_mode():
        next(running)
    assert not next(running)["half"].is_inference()
    assert side.n_begun > 0


def test_another_default_device_moves_no_tensor(ds: fr.Dataset) -> None:
    def sparse(batch: Untyped) -> Untyped:
        return batch | {"sparse": batch["tags"].to_sparse()}

    feeding = fr.torch.loader(ds.loader(BATCH_SIZE, transform=sparse))
    with torch.device("meta"):
        batch = next(iter(feeding))
    for name in ("n", "image", "sparse"):
        assert batch[name].device.type == "cpu"
    assert batch["tags"].values.device.type == "cpu"


def test_a_loader_for_a_device_can_be_pickled(
    ds: fr.Dataset, side: LateSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SideStream", _late_side)
    feeding = on_late_device(ds)
    next(iter(feeding))
    copied = pickle.loads(pickle.dumps(feeding))
    assert copied.state_dict() == feeding.state_dict()
    assert copied._options.allocate is unlocked
    assert copied._options.recycles
    assert next(iter(copied))["image"].shape == (BATCH_SIZE, LARGE)
    assert side.n_begun == 0


def _late_side(_device: object) -> LateSide:
    return LateSide()
