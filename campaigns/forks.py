"""A program that forks repeatedly in one of several situations.

usage: python -m campaigns.forks SITUATION ROUNDS FILES

The child, without the parent's threads, reads everything again; then the parent
continues. The files contain the records 0, 1, ... in their feature "n".
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fastrec as fr
from children import SECONDS_TO_HANG, SEED
from columns import Untyped

SPEC = {"n": fr.FixedLen((), "int64")}
ALL = list(range(400))


def numbers(batches: Untyped) -> list[int]:
    return [int(n) for batch in batches for n in batch["n"]]


def in_child(check: Callable[[], object]) -> None:
    """Fork, check something in the child, and wait for it."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS_TO_HANG // 3)
        status = 1
        try:
            check()
            status = 0
        except BaseException:  # noqa: BLE001 (a child must not go on as the parent)
            traceback.print_exc()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, status


def check_reading(ds: Untyped, loader: Untyped) -> None:
    """Read everything from the beginning with inherited objects."""
    loader.set_epoch(0)
    loader.seek(0)
    assert numbers(loader) == ALL
    assert numbers(ds.loader(7, num_threads=2)) == ALL
    assert len(ds) == len(ALL)


def check_refused(iterator: Iterator[Any]) -> None:
    with pytest.raises(RuntimeError, match="after a fork"):
        next(iterator)


@contextlib.contextmanager
def busy(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` repeatedly in another thread, which runs when the body begins."""
    is_over = threading.Event()
    is_at_it = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            is_at_it.set()
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    is_at_it.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def slowly(batch: Untyped) -> Untyped:
    """A transform that is running most of the time."""
    time.sleep(0.0002)
    return batch


class Forks:
    """The situations, one method each."""

    def __init__(self, n_rounds: int, paths: list[str]) -> None:
        self.n_rounds = n_rounds
        self.paths = paths
        self.random = random.Random(SEED)

    def open(self) -> Untyped:
        return fr.open(self.paths, features=SPEC)

    def rounds(self) -> Iterator[int]:
        for i in range(self.n_rounds):
            signal.alarm(SECONDS_TO_HANG)
            yield i

    def before(self) -> None:
        for _ in self.rounds():
            ds = self.open()
            loader = ds.loader(2, num_threads=3)
            in_child(functools.partial(check_reading, ds, loader))
            assert numbers(loader) == ALL

    def during(self, **options: Untyped) -> None:
        ds = self.open()
        loader = ds.loader(2, num_threads=3, prefetch=16, **options)

        def check() -> None:
            check_refused(iterator)
            check_reading(ds, loader)
            check_refused(iterator)

        for i in self.rounds():
            loader.set_epoch(0)
            iterator = iter(loader)
            got = numbers(next(iterator) for _ in range(i % 7))
            in_child(check)
            assert got + numbers(iterator) == ALL
            loader.set_epoch(0)

    def during_transforms(self) -> None:
        self.during(transform=slowly, transform_threads=2)

    def after(self) -> None:
        ds = self.open()
        loader = ds.loader(2, num_threads=3)
        for _ in self.rounds():
            loader.set_epoch(0)
            iterator = iter(loader)
            assert numbers(iterator) == ALL
            in_child(functools.partial(check_reading, ds, loader))
            assert list(iterator) == []

    def grandchildren(self) -> None:
        ds = self.open()
        loader = ds.loader(2, num_threads=3)

        def check() -> None:
            loader.set_epoch(0)
            mine = iter(loader)
            assert numbers([next(mine)]) == ALL[:2]

            def check_below() -> None:
                check_refused(iterator)
                check_refused(mine)
                check_reading(ds, loader)

            in_child(check_below)
            assert numbers(mine) == ALL[2:]

        for _ in self.rounds():
            loader.set_epoch(0)
            iterator = iter(loader)
            got = numbers(next(iterator) for _ in range(3))
            in_child(check)
            assert got + numbers(iterator) == ALL
            loader.set_epoch(0)

    def while_threads_take(self) -> None:
        """Fork while other threads are inside next() of the same iterator."""
        # The last batch waits for the fork, however slow this thread is. An epoch that
        # is over is not refused in the child.
        is_held: list[bool] = []

        def hold(batch: Untyped) -> Untyped:
            slowly(batch)
            while is_held and ALL[-1] in batch["n"]:
                time.sleep(0.0002)
            return batch

        ds = self.open()
        loader = ds.loader(2, num_threads=1, transform=hold)

        def check() -> None:
            is_held.clear()
            check_refused(iterator)
            check_reading(ds, loader)

        for _ in self.rounds():
            loader.set_epoch(0)
            iterator = iter(loader)
            taken: list[int] = []
            is_held.append(True)
            threads = [
                threading.Thread(
                    target=lambda: taken.extend(numbers(iterator))  # noqa: B023
                )
                for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            time.sleep(self.random.uniform(0, 0.02))
            in_child(check)
            is_held.clear()
            for thread in threads:
                thread.join()
            assert sorted(taken) == ALL
            loader.set_epoch(0)

    def while_a_thread_reads_rows(self) -> None:
        ds = self.open()
        loader = ds.loader(2, num_threads=1)
        pick = random.Random(SEED)
        with busy(lambda: ds[[pick.choice(ALL) for _ in range(50)]]):
            for _ in self.rounds():
                in_child(functools.partial(check_reading, ds, loader))
                loader.set_epoch(0)
                assert numbers(loader) == ALL

    def while_a_thread_indexes(self) -> None:
        """Fork while an index is being built, and thus locked."""
        shared = self.open()
        loader = shared.loader(2, num_threads=1, shuffle=True)

        def build() -> None:
            os.environ["FASTREC_CACHE"] = f"{folder}/{next(versions)}"
            assert len(self.open()) == len(ALL)

        def check() -> None:
            ds = self.open()
            check_reading(ds, ds.loader(3))
            assert sorted(numbers(loader)) == ALL

        versions = itertools.count()
        with tempfile.TemporaryDirectory() as folder, busy(build):
            for _ in self.rounds():
                in_child(check)
        assert sorted(numbers(loader)) == ALL


def main() -> None:
    _, situation, n_rounds, *paths = sys.argv
    warnings.simplefilter("ignore", DeprecationWarning)  # about fork with threads
    # Not dump_traceback_later, which hangs if it was called before a fork.
    faulthandler.register(signal.SIGALRM, chain=True)
    getattr(Forks(int(n_rounds), paths), situation)()


if __name__ == "__main__":
    main()
