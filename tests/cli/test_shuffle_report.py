"""``fastrec shuffle-report`` and its metrics.

Goal
    On records sorted by label, the report shows the bias of a window, and no bias of a
    global shuffle. The reported order is the order that a loader delivers. Repeated and
    lost records are reported.
Method
    Metrics are compared with slow, simple computations: a window as a list, ranks and
    probabilities by hand, simulated orders. The command runs through typer's runner.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastrec as fr
from children import run_python
from columns import open_dataset
from commands import run as run_command
from fastrec import _core
from fastrec.cli.shuffle_metrics import label_metrics, record_metrics
from fastrec.cli.shuffle_report import as_shuffle, loader_draws
from oracle import example, tfrecord_file

N_RECORDS = 70_000
N_LABELS = 10
WINDOW = 4_000

Integers = npt.NDArray[np.int64]


def sorted_labels(n_records: int = N_RECORDS, n_labels: int = N_LABELS) -> Integers:
    return np.arange(n_records) * n_labels // n_records


def file_of(path: Path, labels: Integers) -> Path:
    with fr.Writer(path) as writer:
        for label in labels.tolist():
            writer.write({"label": label})
    return path


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Run ``fastrec shuffle-report`` in this process; return its stdout and stderr."""
    return run_command("shuffle-report", *arguments, status=status)


def values(shown: str, name: str) -> list[str]:
    """Return the cells of the line that begins with `name`."""
    line = next(line for line in shown.splitlines() if line.startswith(name))
    return re.split(" {2,}", line)[1:]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 records, sorted by label in three classes."""
    path = tmp_path_factory.mktemp("sorted") / "sorted.tfrecord"
    return file_of(path, sorted_labels(3_000, 3))


# The orders.


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> fr.Dataset:
    path = tmp_path_factory.mktemp("large") / "sorted.tfrecord"
    return fr.open(file_of(path, sorted_labels()))


@pytest.mark.parametrize("seed", range(3))
def test_a_window_of_a_seventh_leaves_sorted_records_nearly_sorted(
    large: fr.Dataset, seed: int
) -> None:
    draws = loader_draws(large, fr.Window(10_000), seed=seed, epoch=0)
    labels = sorted_labels()
    found = record_metrics(draws, N_RECORDS)
    assert found.rank_correlation == pytest.approx(0.90, abs=0.02)
    assert (found.n_repeated, found.n_lost) == (0, 0)
    assert (draws < np.arange(N_RECORDS) + 10_000).all()
    assert set(labels[draws[:WINDOW]].tolist()) == {0, 1}
    assert 9 not in labels[draws[:50_000]]
    mix = label_metrics(draws, labels, WINDOW)
    assert mix.n_first == 2
    assert mix.last_draw > 50_000
    assert mix.worst_z > 50


def test_a_window_draws_like_a_list_of_slots() -> None:
    n_records, size, n_tries = 5, 3, 5_000

    def drawn_from_a_list(rng: np.random.Generator) -> tuple[int, ...]:
        waiting, slots, draws = list(range(n_records)), list[int](), []
        while waiting or slots:
            while waiting and len(slots) < size:
                slots.append(waiting.pop(0))
            draws.append(slots.pop(rng.integers(len(slots))))
        return tuple(draws)

    def drawn_from_a_window(seed: int) -> tuple[int, ...]:
        runs = np.array([0]), np.array([n_records])
        order = _core.Order.window(*runs, size, seed, 0)
        return tuple(order.records(np.arange(n_records)).tolist())

    rng = np.random.default_rng(0)
    wanted = Counter(drawn_from_a_list(rng) for _ in range(n_tries))
    found = Counter(drawn_from_a_window(seed) for seed in range(n_tries))
    assert wanted.keys() == found.keys()
    assert len(wanted) == 3**2 * math.factorial(3)
    for draws, count in wanted.items():
        assert abs(found[draws] - count) < 6 * math.sqrt(2 * count), draws


@pytest.mark.parametrize("seed", range(5))
def test_a_global_shuffle_mixes_sorted_records(large: fr.Dataset, seed: int) -> None:
    draws = loader_draws(large, True, seed=seed, epoch=seed + 1)
    found = record_metrics(draws, N_RECORDS)
    assert abs(found.rank_correlation) < 0.02
    assert (found.n_repeated, found.n_lost) == (0, 0)
    mix = label_metrics(draws, sorted_labels(), WINDOW)
    assert mix.n_first == N_LABELS
    assert mix.last_draw < 200
    assert mix.worst_z < 5


@pytest.mark.parametrize(
    "shuffle",
    [False, True, fr.Blocks(), fr.Blocks(2_000, 8), fr.Window(100)],
    ids=repr,
)
def test_draws_equal_the_records_a_loader_delivers(
    small: Path, shuffle: bool | fr.Blocks | fr.Window
) -> None:
    ds = open_dataset(small)
    draws = loader_draws(ds, shuffle, seed=7, epoch=2)
    loader = ds.loader(256, shuffle=shuffle, seed=7, rank=0, world_size=1)
    loader.set_epoch(2)
    delivered = np.concatenate([batch["label"] for batch in loader])
    assert np.array_equal(sorted_labels(3_000, 3)[draws], delivered)
    found = record_metrics(draws, 3_000)
    assert (found.n_repeated, found.n_lost) == (0, 0)


# The metrics.


def test_repeated_and_lost_records_are_counted() -> None:
    assert record_metrics(np.array([0, 3, 3, 3, 1, 1]), 6).n_repeated == 2
    assert record_metrics(np.array([0, 3, 3, 3, 1, 1]), 6).n_lost == 3
    assert record_metrics(np.arange(5), 6).n_lost == 1


@given(st.lists(st.integers(0, 12), max_size=30))
def test_rank_correlation_is_pearsons_of_mean_ranks(numbers: list[int]) -> None:
    found = record_metrics(np.array(numbers, np.int64), 13).rank_correlation
    if len(set(numbers)) < 2:
        assert math.isnan(found)
        return
    ranks = [
        sum(other < number for other in numbers) + numbers.count(number) / 2
        for number in numbers
    ]
    assert found == pytest.approx(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def test_rank_correlation_of_sorted_records_is_1() -> None:
    assert record_metrics(np.arange(1_000), 1_000).rank_correlation == pytest.approx(1)
    backwards = np.arange(1_000)[::-1].copy()
    assert record_metrics(backwards, 1_000).rank_correlation == pytest.approx(-1)


def test_metrics_of_random_orders_have_the_expected_distribution() -> None:
    rng = np.random.default_rng(5)
    labels = np.repeat([4, 5, 6, 9], [600, 390, 9, 1])
    metrics = [label_metrics(rng.permutation(1_000), labels, 100) for _ in range(1_000)]
    expected = metrics[0].expected_first
    n_first = np.array([mix.n_first for mix in metrics])
    assert n_first.mean() == pytest.approx(expected, abs=0.05)
    assert n_first.std() > 0
    # Two labels are frequent enough for a z score in each of the ten windows.
    assert {mix.n_counts for mix in metrics} == {20}
    n_above = sum(mix.worst_z > metrics[0].usual_z for mix in metrics)
    assert n_above <= 2 * 0.01 * len(metrics)


def test_one_count_has_the_z_of_the_hypergeometric_distribution() -> None:
    labels = np.repeat([0, 1], 50)
    draws = np.concatenate([np.arange(35), np.arange(50, 65), np.arange(35, 50)])
    draws = np.concatenate([draws, np.arange(65, 100)])
    # 35 of 50, of 100 with 50: mean 25, variance 50 * 1/2 * 1/2 * 50/99.
    mix = label_metrics(draws, labels, 50)
    assert mix.worst_z == pytest.approx(10 / math.sqrt(12.5 * 50 / 99))
    assert mix.n_counts == 4


def test_counts_without_variance_have_no_z() -> None:
    for labels, window in [
        (np.zeros(100, np.int64), 50),  # one label
        (sorted_labels(100, 2), 100),  # one window
        (np.arange(100), 50),  # a label for each record
        (np.zeros(1, np.int64), 1),
    ]:
        mix = label_metrics(np.arange(len(labels)), labels, window)
        assert mix.n_counts == 0
        assert math.isnan(mix.worst_z)
        assert math.isnan(mix.usual_z)


def test_a_label_that_is_never_drawn_is_reported() -> None:
    mix = label_metrics(np.arange(90), sorted_labels(100, 10), 50)
    assert mix.last_draw == -1


# The command.


def test_the_report_without_paths_compares_a_window_and_a_global_shuffle() -> None:
    shown, errors = run()
    assert errors == ""
    assert shown.startswith(
        "70,000 records (synthetic, sorted by label); seed 0, epoch 0\n"
    )
    assert values(shown, " ") == ["window:10000", "true", "random order"]
    window, everything, _ = values(shown, "rank correlation")
    assert float(window) == pytest.approx(0.90, abs=0.02)
    assert abs(float(everything)) < 0.02
    assert values(shown, "records drawn more than once") == ["0", "0", "0"]
    assert values(shown, "records never drawn") == ["0", "0", "0"]
    name = "labels in the first 4,000 draws, of 10"
    assert values(shown, name) == ["2", "10", "10.0"]


def test_the_report_on_files_compares_the_given_orders(small: Path) -> None:
    orders = ["false", "true", "blocks", "blocks:2KB", "blocks:2KB,8", "window:100"]
    arguments = [text for order in orders for text in ("--shuffle", order)]
    shown, errors = run(small, *arguments, "--label", "label", "--window", "300")
    assert errors == ""
    assert shown.startswith("3,000 records in 1 file; seed 0, epoch 0\n")
    assert values(shown, " ") == [*orders, "random order"]
    assert values(shown, "rank correlation")[0] == "1.000"
    assert values(shown, "labels in the first 300 draws, of 3")[0] == "1"


def test_json_has_the_metrics_of_each_order() -> None:
    found = json.loads(run("--json", "--shuffle", "window:10000")[0])
    assert (found["n_records"], found["window"]) == (N_RECORDS, WINDOW)
    (order,) = found["orders"]
    assert order["shuffle"] == "window:10000"
    assert order["rank_correlation"] == pytest.approx(0.901, abs=0.02)
    assert (order["n_lost"], order["n_labels"], order["n_first"]) == (0, 10, 2)


def test_the_report_follows_seed_and_epoch(small: Path) -> None:
    shown = {
        run(small, "--shuffle", "true", "--seed", seed, "--epoch", epoch)[0]
        for seed, epoch in [("0", "0"), ("5", "0"), ("0", "7")]
    }
    assert len(shown) == 3
    correlations = {values(text, "rank correlation")[0] for text in shown}
    assert len(correlations) > 1


def test_records_without_labels_are_reported_on(tmp_path: Path) -> None:
    path = tmp_path / "raw.tfrecord"
    path.write_bytes(tfrecord_file([b"no example"] * 500))
    shown, _ = run(path)
    assert "labels" not in shown
    assert values(shown, "records never drawn") == ["0", "0", "0"]
    path.write_bytes(tfrecord_file([b"one"]))
    assert values(run(path)[0], "rank correlation") == ["-", "-", "0"]


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("random", "got 'random'"),
        ("window", "got 'window'"),
        ("true:1", "got 'true:1'"),
        ("window:", "got 'window:'"),
        ("window:0", "at least 1"),
        ("blocks:", "got 'blocks:'"),
        ("blocks:4 apples", "block_bytes"),
        ("blocks:4MB,", "got 'blocks:4MB,'"),
        ("blocks:4MB,0", "lanes must be at least 1"),
    ],
)
def test_an_unknown_order_is_named_in_the_error(order: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        as_shuffle(order)
    _, errors = run("--shuffle", order, status=2)
    assert "--shuffle" in errors


def test_orders_are_parsed() -> None:
    assert as_shuffle("True") is True
    assert as_shuffle("false") is False
    assert as_shuffle("blocks") == fr.Blocks()
    assert as_shuffle("blocks:1MiB") == fr.Blocks("1MiB")
    assert as_shuffle("blocks:1MB,8") == fr.Blocks("1MB", 8)
    assert as_shuffle("window:10_000") == fr.Window(10_000)


def test_a_label_must_be_one_integer(tmp_path: Path) -> None:
    row = example(
        {
            b"name": ("bytes", [b"cat"]),
            b"pair": ("int64", [1, 2]),
            b"weight": ("float", [1.0]),
        }
    )
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(tfrecord_file([row] * 3))
    _, errors = run(path, "--label", "lable", status=1)
    assert errors == (
        "error: no feature 'lable'; the records have 'name', 'pair', 'weight'\n"
    )
    for name in ("name", "pair", "weight"):
        _, errors = run(path, "--label", name, status=1)
        assert errors.startswith(
            f"error: a label must be one integer per record, got {name!r} with "
        )
        assert errors.count("\n") == 1


def test_an_empty_file_is_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.tfrecord"
    path.write_bytes(b"")
    assert run(path, status=2) == ("", "error: no records in 1 file\n")


def test_a_plot_with_an_unknown_suffix_is_refused_first(tmp_path: Path) -> None:
    shown, errors = run("--plot", tmp_path / "picture.txt", status=2)
    assert shown == ""
    assert "--plot" in errors


def test_without_matplotlib_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "sys.argv = ['fastrec', 'shuffle-report', '--plot', 'picture.png']\n"
        "from fastrec.cli import main\n"
        "main()"
    )
    done = run_python(code, status=2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "requires matplotlib" in done.stderr
    assert 'pip install "fastrec-io[plot]"' in done.stderr


def test_the_report_itself_needs_no_matplotlib(small: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        f"sys.argv = ['fastrec', 'shuffle-report', {str(small)!r}]\n"
        "from fastrec.cli import main\n"
        "main()"
    )
    run_python(code)


@pytest.mark.parametrize("label", [[], ["--label", "label"]], ids=["records", "labels"])
def test_the_plot_is_small_and_reproducible(
    small: Path, tmp_path: Path, label: list[str]
) -> None:
    pytest.importorskip("matplotlib")
    made = []
    for name in ("a.png", "b.PNG"):
        shown, _ = run(small, *label, "--plot", tmp_path / name)
        assert shown.endswith(f"wrote {tmp_path / name}\n")
        made.append((tmp_path / name).read_bytes())
    assert made[0].startswith(b"\x89PNG\r\n\x1a\n")
    assert made[0] == made[1]
    assert len(made[0]) < 300_000


def test_a_plot_that_cannot_be_written_is_a_one_line_error(
    small: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "nowhere" / "picture.svg"
    _, errors = run(small, "--plot", path, status=2)
    assert errors == f"error: {path}: No such file or directory\n"
