"""Power cuts while files are written.

Goal
    A file under its final name is complete after a power cut, or is the file that was
    there before; what is left of caches is not believed. The model of a disk, in which
    power cuts are tried, loses what a disk may lose and nothing else.
Method
    A program records the calls of writers and tries FASTREC_TEST_RUNS states (440) of the
    disk. The model is tried with short lists of calls, in all states.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from itertools import product

import pytest

from campaigns.disk_states import CONTENTS, MODELS, NAMES, Call, Choice, Disk
from children import n_runs, run_campaign

FOLDER = (1, None)
CREATED = Call("c", 2, 0, "/f/.tmp", b"")
WRITTEN = Call("w", 2, 0, "", b"n" * 9000)
FLUSHED = Call("s", 2, 0, "", b"")
RENAMED = Call("r", 0, 0, "/f/.tmp", b"/f/a")
FOLDER_FLUSHED = Call("s", 1, 0, "", b"")
OLD, NEW = b"o" * 9000, WRITTEN.data


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="preloading, as Linux has it, of a library that is compiled by cc",
)
def test_a_power_cut_leaves_complete_files_and_caches_that_are_not_believed() -> None:
    runs = n_runs(440)
    printed = run_campaign("power_cut", "--runs", runs)
    figures = json.loads(printed.splitlines()[-1])
    assert figures["runs"] == runs
    assert figures["incomplete_without_sync"] > 0, "the model finds nothing"


# --- The model ------------------------------------------------------------------------


def states(calls: list[Call], model: str, *, first: int = 0) -> list[dict[str, bytes]]:
    """Return states after each number of calls from `first` on, 50 of each kind."""
    before: dict[str, tuple[int, bytes | None]] = {"/f": FOLDER, "/f/a": (3, OLD)}
    disk = Disk(before, calls)
    times = range(first, len(calls) + 1)
    found = []
    for time, names, contents, seed in product(times, NAMES, CONTENTS, range(50)):
        choice = Choice(time, model, names, contents)
        state = disk.state(choice, random.Random(seed))
        found.append({path: content for path, (_, content) in state.items()})
    return found


@pytest.mark.parametrize("model", MODELS)
def test_a_flushed_file_replaces_another_as_a_whole(model: str) -> None:
    calls = [CREATED, WRITTEN, FLUSHED, RENAMED, FOLDER_FLUSHED]
    assert {state["/f/a"] for state in states(calls, model)} == {OLD, NEW}
    assert all(
        state == {"/f/a": NEW} for state in states(calls, model, first=len(calls))
    )
    renamed = states(calls, model, first=len(calls) - 1)
    assert {state["/f/a"] for state in renamed} == {OLD, NEW}


@pytest.mark.parametrize("model", MODELS)
def test_a_file_that_is_not_flushed_may_lose_any_part(model: str) -> None:
    calls = [CREATED, WRITTEN, RENAMED, FOLDER_FLUSHED]
    found = {state["/f/a"] for state in states(calls, model, first=len(calls))}
    assert {b"", NEW, NEW[:4096], NEW[:8192], bytes(len(NEW))} <= found
    holes = b"n" * 4096 + bytes(4096) + b"n" * (9000 - 8192)
    assert holes in found
    torn = b"n" * 512 + bytes(512)
    assert any(torn in content for content in found)
    assert all(set(content) <= set(b"n\0") for content in found)


@pytest.mark.parametrize("model", MODELS)
def test_appended_bytes_do_not_change_flushed_ones(model: str) -> None:
    calls = [Call("w", 3, len(OLD), "", b"n" * 5000), Call("t", 3, 9100, "", b"")]
    found = {state["/f/a"] for state in states(calls, model)}
    assert all(content.startswith(OLD) for content in found)
    assert {len(content) for content in found} >= {9000, 9100, 12288, 14000}


def test_a_journal_keeps_the_order_of_names_and_other_file_systems_do_not() -> None:
    calls = [CREATED, RENAMED, Call("c", 4, 0, "/f/b", b"")]
    reordered = {"/f/a": OLD, "/f/b": b""}
    assert reordered not in states(calls, "journal")
    assert reordered in states(calls, "posix")
    # A journal flushes with a file all changes that came before its own.
    flushed = [*calls, Call("s", 4, 0, "", b"")]
    assert states(flushed, "journal", first=4) == [{"/f/a": b"", "/f/b": b""}] * 750
    assert reordered in states(flushed, "posix", first=4)


@pytest.mark.parametrize("model", MODELS)
def test_a_removed_file_returns_unless_its_directory_is_flushed(model: str) -> None:
    removed = Call("u", 0, 0, "/f/a", b"")
    assert {"/f/a": OLD} in states([removed], model, first=1)
    assert states([removed, FOLDER_FLUSHED], model, first=2) == [{}] * 750
