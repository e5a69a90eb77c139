"""Measure reading, inference and writing by the number of features.

The cost per feature must be constant, so times must grow in proportion to the number of
features. Keys of the last workload have equal ends, so the hash of the fast path does not
distinguish them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fastrec as fr
from fastrec.compat import tf_io

__all__: list[str] = []

N_RECORDS = 4


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Return the seconds of the fastest of `repeat` calls."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def measured(
    folder: Path, n_features: int, ending: str, repeat: int
) -> dict[str, float]:
    """Return the seconds of each step on records of `n_features`."""
    path = folder / f"{n_features}{ending}.tfrecord"
    row = {f"f{i:06}{ending}": i for i in range(n_features)}
    specs = {name: fr.FixedLen((), "int64") for name in row}
    ragged = {name: fr.VarLen("int64") for name in row}
    limits = fr.Limits(max_features=n_features)

    def write() -> None:
        with fr.Writer(path, overwrite=True) as writer:
            for _ in range(N_RECORDS):
                writer.write(row)

    def first_batch(features: object) -> None:
        next(iter(fr.open(path, features=features).loader(N_RECORDS)))  # type: ignore[arg-type]

    result = {"write": seconds(write, repeat)}
    ds = fr.open(path, limits=limits)
    result["infer"] = seconds(lambda: ds.infer_schema(), repeat)
    schema = ds.schema
    result["print"] = seconds(lambda: repr(schema), repeat)
    result["first batch, dense"] = seconds(lambda: first_batch(specs), repeat)
    result["first batch, ragged"] = seconds(lambda: first_batch(ragged), repeat)
    result["parse one"] = seconds(
        lambda: tf_io.parse_single_example(fr.encode_example(row), specs), repeat
    )
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("", "_embedding"):
            before: dict[str, float] = {}
            for n_features in arguments.features:
                found = measured(Path(folder), n_features, ending, arguments.repeat)
                print(f"{n_features:,} features named f000000{ending}")
                for step, taken in found.items():
                    ratio = f"{taken / before[step]:8.1f} x" if before else ""
                    print(f"  {step:<20}{taken:9.3f} s{ratio}")
                before = found


if __name__ == "__main__":
    main()
