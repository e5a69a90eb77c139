"""A program that exits in the middle of an operation, and must do so silently.

usage: python -m campaigns.exits SITUATION FILES
"""

from __future__ import annotations

import atexit
import faulthandler
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from children import SECONDS_TO_HANG

kept: list[Any] = []  # lives until the modules die


def main() -> None:
    _, situation, *paths = sys.argv
    # Not cancelled, because exit may hang, too.
    faulthandler.dump_traceback_later(SECONDS_TO_HANG, exit=True)

    def begin_late() -> None:
        """Begin an epoch after fastrec's exit handlers have run."""
        kept.append(iter(kept.pop()))
        try:
            next(kept[0])
        except RuntimeError as error:
            if "during interpreter exit" not in str(error):
                raise

    done = threading.Event()

    def check_done() -> None:
        """Run after fastrec's exit handlers."""
        assert done.is_set()  # the error is printed

    if situation == "dropped_pool":
        atexit.register(check_done)
    if situation in ("atexit", "atexit_transforms"):
        atexit.register(begin_late)  # runs after handlers that are registered later

    import fastrec as fr

    ds = fr.open(paths, features={"n": fr.FixedLen((), "int64")})
    loader = ds.loader(8, num_threads=2)
    assert len(ds)  # which Python's thread pools do not allow at exit

    def live_iterator() -> None:
        kept.append(iter(loader))
        kept.append(next(kept[0]))

    def live_transform() -> None:
        kept.append(iter(ds.loader(8, transform=dict, transform_threads=2)))
        next(kept[0])

    def live_rows() -> None:
        transform = fr.per_row(
            lambda row: row["n"], out={"m": fr.FixedLen((), "int64")}
        )
        kept.append(iter(ds.loader(8, transform=transform, transform_threads=2)))
        next(kept[0])

    def daemon_thread() -> None:
        for_ever = ds.loader(8, num_threads=2, transform=dict).repeat()
        is_at_it = threading.Event()

        def take() -> None:
            for _ in for_ever:
                is_at_it.set()

        threading.Thread(target=take, daemon=True).start()
        is_at_it.wait()

    def other_thread() -> None:
        threading.Thread(target=lambda: kept.extend(loader)).start()

    def exception_in_flight() -> None:
        for _ in loader:
            sys.exit(0)

    def cycle() -> None:
        iterator = iter(loader)
        next(iterator)
        knot: list[object] = [iterator, ds]
        knot.append(knot)

    def dropped_pool() -> None:
        from fastrec.tasks import TaskPool

        pool = TaskPool(1)
        begun = threading.Event()

        def work() -> None:
            begun.set()
            time.sleep(0.5)
            done.set()

        pool.submit(work)
        begun.wait()

    def dropped_transforms() -> None:
        """Threads destroy these pools, and their pipelines, during interpreter exit."""
        for _ in range(8):
            iterator = iter(ds.loader(8, transform=dict, transform_threads=2))
            next(iterator)
            del iterator

    def late() -> None:
        kept.append(loader)

    def late_transforms() -> None:
        kept.append(ds.loader(8, transform=dict, transform_threads=2))
        next(iter(kept[0]))

    situations: dict[str, Callable[[], None]] = {
        "live_iterator": live_iterator,
        "live_transform": live_transform,
        "live_rows": live_rows,
        "daemon_thread": daemon_thread,
        "other_thread": other_thread,
        "exception_in_flight": exception_in_flight,
        "cycle": cycle,
        "dropped_pool": dropped_pool,
        "dropped_transforms": dropped_transforms,
        "atexit": late,
        "atexit_transforms": late_transforms,
    }
    situations[situation]()


if __name__ == "__main__":
    main()
