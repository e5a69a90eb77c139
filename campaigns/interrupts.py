"""A campaign that interrupts everything that can be interrupted, at random moments.

usage: python -m campaigns.interrupts MODE [--signals N] [--seed N] [KIND ...]

MODE is single (one signal per call) or storm (2 to 20 signals). KIND is readers,
writers or calls, which are the default, the name of an adapter (torch, jax, keras,
grain, polars), or adapters for those that are installed. A signal handler raises in
the middle of a call. After each case, nothing is lost or repeated, published files are
complete, and no thread, descriptor, lock or temporary file remains. Prints two objects
of JSON: how many signals each kind received and how its cases ended, and the sums. If a
call hangs, the program ends with all stacks.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import importlib
import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import fastrec as fr
from campaigns.interrupted_calls import CALLS, prepare_call, run_call
from campaigns.interrupted_readers import (
    ADAPTERS,
    Data,
    Kind,
    adapter_of,
    prepare_reader,
    reader_kinds,
    run_reader,
)
from campaigns.interrupted_writers import (
    KINDS,
    REWRITES,
    Case,
    rewritten,
    written_source,
)
from campaigns.signals import MODES, Signals, nothing_left
from children import SECONDS_TO_HANG
from object_server import served

_DEFAULT = ("readers", "writers", "calls")


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve the files from another process; yield the URL."""
    from_child, to_parent = os.pipe()
    end, parent_end = os.pipe()
    if os.fork() == 0:
        os.close(parent_end)
        with served(Data.contents()) as server:
            os.write(to_parent, server.url.encode())
            os.read(end, 1)  # until the parent ends
        os._exit(0)
    os.close(end)
    yield os.read(from_child, 100).decode()
    os.close(parent_end)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds-to-hang", type=int, default=2 * SECONDS_TO_HANG)
    parser.add_argument("kinds", nargs="*", default=_DEFAULT)
    options = parser.parse_intermixed_args()
    if unknown := {*options.kinds} - {*_DEFAULT, "adapters", *ADAPTERS}:
        parser.error(f"not a kind, or not installed: {', '.join(sorted(unknown))}")
    if [*options.kinds] == ["adapters"] and not ADAPTERS:
        parser.error("the framework of no adapter is installed")
    # Keras has one backend in a process, chosen before it is imported.
    os.environ.setdefault("KERAS_BACKEND", "torch")
    # A signal in the logging module would leave its lock held.
    logging.getLogger("fastrec").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with serving() as url, tempfile.TemporaryDirectory() as top:
        report = run(options, Data(Path(top) / "data", url), Path(top))
    sys.stdout.write(json.dumps(report) + "\n")


def run(options: argparse.Namespace, data: Data, top: Path) -> dict[str, int]:
    """Run cases until enough signals have come, print them, and return the sums."""
    for name, content in Data.contents().items():
        path = data.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    cache = top / "cache"
    cache.mkdir()
    os.environ["FASTREC_CACHE"] = str(cache)
    sources = [written_source(top, token) for token in range(3)]
    kinds = [kind for kind in options.kinds if kind != "adapters"]
    if "adapters" in options.kinds:
        kinds += [kind for kind in ADAPTERS if kind not in kinds]
    # The names of what each group can do, and of the readers, what they have in common.
    groups: dict[str, list[str]] = {kind: [] for kind in kinds}
    readers: dict[str, list[Kind]] = {}
    for kind in reader_kinds():
        if kind.group in groups:
            readers.setdefault(kind.pace, []).append(kind)
    for pace, [kind, *_] in readers.items():
        groups[kind.group].append(pace)
    for name in CALLS:
        if (group := adapter_of(name) or "calls") in groups:
            groups[group].append(name)
    if "writers" in groups:
        groups["writers"] = [*KINDS, *REWRITES]
    signals = Signals(options.mode, options.seed)
    draw = signals.draw
    ends: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    of_groups: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    token = 0

    def rarest(group: str) -> str:
        """Return the name with the fewest signals, cases without any included."""
        return min(
            groups[group],
            key=lambda name: raised[f"{group} {name}"] + cases[f"{group} {name}"] / 5,
        )

    for adapter in groups.keys() & {*ADAPTERS}:
        importlib.import_module(f"fastrec.{adapter}")
    gc.freeze()  # makes later collections fast
    while signals.n_raised < options.signals:
        # Its thread ends the program whatever this one does. It must exist in the
        # counts of threads before and after.
        faulthandler.dump_traceback_later(options.seconds_to_hang, exit=True)
        token += 1
        group = min(groups, key=of_groups.__getitem__)
        n_threads = draw.randint(0, 2)
        folder = top / f"case-{token}"
        folder.mkdir()
        before = signals.n_raised
        case: Callable[[], str]
        name = label = rarest(group)
        if name in readers:
            kind = draw.choice(readers[name])
            label = str(kind)
            prepare_reader(kind, data)
            case = partial(run_reader, signals, kind, data)
        elif group != "writers":
            prepare_call(name, folder, data)
            case = partial(run_call, signals, name, n_threads, folder, data)
        elif name in KINDS:
            case = Case(signals, name, n_threads, folder, token).run
        else:
            case = partial(rewritten, signals, name, n_threads, folder, sources)
        try:
            with nothing_left(folder, cache, data.folder):
                end = case()
                del case
        except BaseException:  # noqa: BLE001 (the program ends)
            traceback.print_exc()
            sys.exit(
                f"seed {options.seed}, case {token}: {group} {label}, {n_threads} threads"
            )
        ends[f"{group} {end}"] += 1
        raised[f"{group} {name}"] += signals.n_raised - before
        cases[f"{group} {name}"] += 1
        of_groups[group] += signals.n_raised - before
        shutil.rmtree(folder)
        if token % 100 == 0:
            check_garbage(signals)
            shutil.rmtree(cache)
            cache.mkdir()
    sys.stdout.write(json.dumps({"ends": ends, "signals": raised}) + "\n")
    return {
        "runs": signals.n_raised,
        "cases": token,
        "kinds": sum(n > 0 for n in raised.values()),
        "slowest_ms": round(signals.slowest_ms),
        **{f"in_{name}": of_groups[name] for name in groups if name in ADAPTERS},
    }


def check_garbage(signals: Signals) -> None:
    """Check that no writer outlives its case."""
    gc.collect()
    n_alive = sum(isinstance(found, fr.Writer) for found in gc.get_objects())
    assert n_alive <= signals.n_swallowed, n_alive


if __name__ == "__main__":
    main()
