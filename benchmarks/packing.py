"""Compare fastrec's packing with Grain's: how full the rows are, and the CPU time.

Both shuffle documents of log-normal lengths and join them into rows of tokens with
segment ids and positions. fastrec plans the epoch (`fr.samplers.pack`), reads and checks
the records of a file, and makes the rows (`fr.pack_columns`). Grain packs arrays that are
in memory already, so it reads nothing. CPU time is that of the whole process, over one
epoch. Both alternate, an epoch each, and the tokens are compared before timing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastrec as fr
from environment import describe

__all__: list[str] = []

Epoch = Callable[[int], Iterable[dict[str, Any]]]


def documents(n: int, mean: float, sigma: float, length: int) -> list[Any]:
    """Return `n` documents of log-normal lengths, none longer than a row."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(mean, sigma, n).astype(np.int64), 1, length)
    return [rng.integers(1, 32_000, size, dtype=np.int32) for size in lengths]


def of_fastrec(path: Path, args: argparse.Namespace, window: int) -> Epoch:
    """Pack the records of a file."""
    ds = fr.open(path, features={"tokens": fr.VarLen("int32")})
    column: Any = ds[:]["tokens"]
    loader = ds.loader(
        batches=fr.samplers.pack(column.lengths, args.length, args.rows, window=window),
        transform=fr.pack_columns(["tokens"], args.length),
    )

    def epoch(number: int) -> Iterator[dict[str, Any]]:
        loader.set_epoch(number)
        return iter(loader)

    return epoch


def of_grain(texts: list[Any], args: argparse.Namespace, kind: str, bins: int) -> Epoch:
    """Pack arrays in memory."""
    import grain
    import grain.experimental

    packing = getattr(grain.experimental, f"{kind}PackIterDataset")

    def epoch(number: int) -> Iterator[dict[str, Any]]:
        shuffled = grain.MapDataset.source(texts).seed(0).shuffle(seed=number)
        rows = packing(
            shuffled.map(lambda text: {"tokens": text}).to_iter_dataset(
                grain.ReadOptions(num_threads=0)
            ),
            length_struct={"tokens": args.length},
            num_packing_bins=bins,
        )
        return iter(rows.batch(args.rows))

    return epoch


def consume(epoch: Iterable[dict[str, Any]], length: int) -> tuple[int, int, float]:
    """Return the sum of tokens, the number of values, and how full the rows are."""
    total, n_values, n_places = 0, 0, 0
    for batch in epoch:
        total += int(batch["tokens"].sum(dtype=np.int64))
        n_values += int((batch["tokens_segment_ids"] > 0).sum())
        n_places += len(batch["tokens"]) * length
    return total, n_values, n_values / n_places


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=2048, help="tokens in a row")
    parser.add_argument("--rows", type=int, default=8, help="rows in a batch")
    parser.add_argument("--mean", type=float, default=5.5, help="of log(length)")
    parser.add_argument("--sigma", type=float, default=1.0, help="of log(length)")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    texts = documents(args.records, args.mean, args.sigma, args.length)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.tfrecord"
        fr.write(path, {"tokens": fr.RaggedArray.from_list(texts)})
        bins = args.rows
        epochs: dict[str, Epoch] = {
            "fastrec, window 32": of_fastrec(path, args, 32),
            f"fastrec, window {bins}": of_fastrec(path, args, bins),
            f"Grain first fit, {bins} bins": of_grain(texts, args, "FirstFit", bins),
            "Grain first fit, 32 bins": of_grain(texts, args, "FirstFit", 32),
            f"Grain best fit, {bins} bins": of_grain(texts, args, "BestFit", bins),
        }
        found = {name: consume(run(0), args.length) for name, run in epochs.items()}
        want = sum(int(text.sum(dtype=np.int64)) for text in texts)
        for name, (total, n_values, _) in found.items():
            if (total, n_values) != (want, sum(map(len, texts))):
                sys.exit(f"{name} delivers other tokens")
        times: dict[str, list[float]] = {name: [] for name in epochs}
        for number in range(1, args.repeat + 1):
            for name, run in epochs.items():
                begin = time.process_time()
                consume(run(number), args.length)
                times[name].append(time.process_time() - begin)
    print(describe())
    print(f"{args.records:,} documents of {np.mean([*map(len, texts)]):.0f} tokens")
    print("|  | rows full | CPU us a document | ratio to fastrec | spread |")
    print("| --- | ---: | ---: | ---: | ---: |")
    first = times["fastrec, window 32"]
    for name, seconds in times.items():
        ratios = [own / base for own, base in zip(seconds, first, strict=True)]
        middle = statistics.median(ratios)
        print(
            f"| {name} | {found[name][2]:.1%} "
            f"| {statistics.median(seconds) / args.records * 1e6:.1f} "
            f"| {middle:.2f} | {(max(ratios) - min(ratios)) / middle:.0%} |"
        )


if __name__ == "__main__":
    main()
