"""Measure rows of steps, compared with decoding their images alone and with tf.data.

Two files of generated episodes: frames of 256 x 256 pixels, as JPEG, with actions; and
actions with states only. Every reader runs in its own process, and the processes take
turns. CPU time counts all threads, of which each reader may use one at a time. Files
are in the page cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from images import Worker, add_run_options, photograph, save
from worker import megabytes

__all__: list[str] = []

SIDE, N_STEPS = 256, 100  # of a frame, and of an episode
ACTION, STATE = 7, 8  # numbers of each step
HISTORY, CHUNK = [-1, 0], range(16)  # the windows of frames and of actions
N_PICTURES, N_FRAMES = 8, 400  # distinct ones
SHUFFLE_BUFFER = 10_000  # windows
# The ways of reading by kind of file.
WAYS = {
    "images": ("decode alone", "fastrec", "tf.data"),
    "actions": ("fastrec", "fastrec, shuffled", "tf.data", "tf.data, shuffled"),
}
BATCH_SIZES = {"images": [64], "actions": [256, 1024]}
N_ROWS = {"images": 1280, "actions": 131_072}  # of a round


def generate(folder: Path, n_episodes: int) -> dict[str, Path]:
    """Write the file of each kind, unless it exists; frames are repeated."""
    import cv2

    import fastrec as fr

    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"images": n_episodes, "actions": 10 * n_episodes}
    paths = {kind: folder / f"{kind}-{n}.tfrecord" for kind, n in sizes.items()}
    rng = np.random.default_rng(0)
    frames: list[bytes] = []
    for kind, path in paths.items():
        if path.exists():
            continue
        if kind == "images":
            pictures = [photograph(rng) for _ in range(N_PICTURES)]
            for i in range(N_FRAMES):  # the camera moves
                which, at = divmod(i, N_FRAMES // N_PICTURES)
                picture = pictures[which][at : at + SIDE, at : at + SIDE]
                encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 97])
                frames.append(encoded[1].tobytes())
        with fr.Writer(path) as writer:
            for i in range(sizes[kind]):
                row: dict[str, Any] = {
                    "action": rng.random(N_STEPS * ACTION, np.float32),
                    "text": f"pick up object {i}",
                }
                if kind == "images":
                    first = 37 * i
                    row["image"] = [
                        frames[(first + step) % N_FRAMES] for step in range(N_STEPS)
                    ]
                else:
                    row["state"] = rng.random(N_STEPS * STATE, np.float32)
                writer.write(row)
        n_bytes = path.stat().st_size
        print(f"{path.name}: {n_bytes / 1e6:,.0f} MB in {sizes[kind]:,} episodes")
    return paths


def fastrec_batches(path: str, kind: str, batch_size: int, way: str) -> Iterator[Any]:
    """Read epochs of windows through a loader, inside next()."""
    import fastrec as fr

    features: dict[str, Any] = {"action": fr.VarLen("float32", (ACTION,))}
    windows: dict[str, Any] = {"action": CHUNK}
    if kind == "images":
        features["text"] = fr.FixedLen((), "bytes")
        features["image"] = fr.List(fr.Image((SIDE, SIDE)))
        windows["image"] = HISTORY
    loader = (
        fr.open(path, features=features)
        .steps(windows)
        .loader(
            batch_size,
            shuffle=kind == "images" or "shuffled" in way,
            drop_last=True,
            num_threads=0,
            transform_threads=0,
        )
    )
    for batch in loader.repeat():
        yield batch["image" if kind == "images" else "action"]


def decoded_batches(path: str, batch_size: int) -> Iterator[Any]:
    """Decode the images of a batch of windows, chosen at random, into one array."""
    import fastrec as fr
    from fastrec.options import Limits
    from fastrec.transforms.images import ImageDecoder

    ds = fr.open(path, features={"image": fr.VarLen("bytes")})
    frames = [
        np.frombuffer(frame, np.uint8) for row in ds for frame in row["image"].tolist()
    ]
    spec = fr.Image((SIDE, SIDE))
    decoder = ImageDecoder(Limits(), [spec])
    rows = np.empty((batch_size * len(HISTORY), SIDE, SIDE, 3), np.uint8)
    rng = np.random.default_rng(0)
    while True:
        chosen = rng.integers(0, len(frames), len(rows)).tolist()
        for row, i in zip(rows, chosen, strict=True):
            decoder.decode(frames[i], spec, None, row)
        yield rows.reshape(batch_size, len(HISTORY), SIDE, SIDE, 3)


def tf_batches(path: str, kind: str, batch_size: int, way: str) -> Iterator[Any]:
    """Read through tf.data: parse, unbatch windows of encoded frames, shuffle, decode."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    spec = {"action": tf.io.FixedLenSequenceFeature((ACTION,), tf.float32, True)}
    if kind == "images":
        spec["image"] = tf.io.FixedLenSequenceFeature((), tf.string, True)
        spec["text"] = tf.io.FixedLenFeature((), tf.string)

    def windows(record: Any) -> Any:
        row = tf.io.parse_single_example(record, spec)
        n_steps = tf.shape(row["action"])[0]

        def window(values: Any, offsets: Any) -> Any:
            at = tf.range(n_steps)[:, tf.newaxis] + tf.constant([*offsets])
            return tf.gather(values, tf.clip_by_value(at, 0, n_steps - 1))

        rows = {"action": window(row["action"], CHUNK)}
        if kind == "images":
            rows["image"] = window(row["image"], HISTORY)
            rows["text"] = tf.repeat(row["text"], n_steps)
        return rows

    def decode(row: Any) -> Any:
        frames = [
            tf.io.decode_jpeg(frame, channels=3)
            for frame in tf.unstack(row["image"], len(HISTORY))
        ]
        return {**row, "image": tf.ensure_shape(frames, (len(HISTORY), SIDE, SIDE, 3))}

    dataset = tf.data.TFRecordDataset(path).repeat().map(windows).unbatch()
    if kind == "images" or "shuffled" in way:
        dataset = dataset.shuffle(SHUFFLE_BUFFER)
    if kind == "images":
        dataset = dataset.map(decode)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    dataset = dataset.batch(batch_size, drop_remainder=True).prefetch(1)
    for batch in dataset.with_options(options):
        yield batch["image" if kind == "images" else "action"]


def work(way: str, path: str, kind: str, batch_size: int, n_rows: int) -> None:
    """Read rows for each line of the input, and print the figures as JSON."""
    before, private_before = megabytes("VmRSS"), megabytes("RssAnon")
    if way == "decode alone":
        batches = decoded_batches(path, batch_size)
    else:
        make = tf_batches if way.startswith("tf.data") else fastrec_batches
        batches = make(path, kind, batch_size, way)
    n_batches, private = n_rows // batch_size, 0.0
    warm_up = itertools.islice(batches, n_batches)
    mean = statistics.mean(float(np.mean(batch)) for batch in warm_up)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for batch in itertools.islice(batches, n_batches):
            assert len(batch) == batch_size
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        private = max(private, megabytes("RssAnon"))
        figures = {
            "n": n_batches * batch_size,
            "wall": wall,
            "cpu": cpu,
            "mean": mean,
            "private_mb": private - private_before,
            "peak_mb": megabytes("VmHWM") - before,
        }
        print(json.dumps(figures), flush=True)


def measured(
    ways: dict[str, str],
    kind: str,
    path: Path,
    batch_size: int,
    n_rows: int,
    n_rounds: int,
) -> list[dict[str, Any]]:
    """Return a row for each way of reading, whose rounds take turns."""
    arguments = [str(path), kind, str(batch_size), str(n_rows)]
    workers = {
        way: Worker(python, [way, *arguments], __file__) for way, python in ways.items()
    }
    failures: dict[str, str] = {}
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(n_rounds):
        for way, worker in workers.items():
            try:
                rounds[way].append(worker.epoch())
            except RuntimeError as error:
                failures.setdefault(way, str(error))
    rows: list[dict[str, Any]] = []
    for way, worker in workers.items():
        worker.close()
        rows.append({"rows": kind, "batch": batch_size, "way": way})
        if way in failures:
            rows[-1]["failure"] = failures[way]
            continue
        rows[-1]["costs_us"] = [1e6 * each["cpu"] / each["n"] for each in rounds[way]]
        last = rounds[way][-1]
        rows[-1] |= {name: last[name] for name in ("mean", "private_mb", "peak_mb")}
    return rows


def ratio(costs: list[float], others: list[float] | None) -> str:
    """Return the median of the ratios of the rounds, as a text."""
    if others is None:
        return "-"
    ratios = [a / b for a, b in zip(costs, others, strict=True)]
    return f"{statistics.median(ratios):.2f}"


def report(rows: list[dict[str, Any]]) -> None:
    """Print the rows of one case."""
    costs = {row["way"]: row["costs_us"] for row in rows if "costs_us" in row}
    for row in rows:
        case = f"| {row['rows']} | {row['batch']} | {row['way']} "
        if "failure" in row:
            print(f"{case}| - | - | - | - | - | - | {row['failure']} |", flush=True)
            continue
        ours = row["costs_us"]
        of_tf = costs.get(row["way"].replace("fastrec", "tf.data"))
        median = statistics.median(ours)
        print(
            f"{case}| {median:,.2f} | {min(ours):,.2f} "
            f"| {ratio(ours, costs.get('decode alone'))} | {1e6 / median:,.0f} "
            f"| {'-' if of_tf is None else ratio(of_tf, ours)} "
            f"| {row['private_mb']:,.0f} | {row['peak_mb']:,.0f} |",
            flush=True,
        )


def check(rows: list[dict[str, Any]]) -> None:
    """Raise a SystemExit if the readers read different values."""
    means = {row["way"]: row["mean"] for row in rows if "mean" in row}
    if means and max(means.values()) > 1.1 * min(means.values()):
        sys.exit(f"the readers read different values: means {means}")


def main() -> None:
    """Parse the arguments, generate the data and print the table."""
    if "--worker" in sys.argv:
        way, path, kind, *numbers = sys.argv[2:]
        work(way, path, kind, *map(int, numbers))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/step-data"))
    parser.add_argument("--rows", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument(
        "--tf", metavar="PYTHON", help="an interpreter with TensorFlow, to compare with"
    )
    add_run_options(parser, n_rounds=5)
    options = parser.parse_args()
    n_episodes, n_rounds = (8, 1) if options.quick else (200, options.rounds)
    paths = generate(options.data, n_episodes)
    columns: tuple[str, ...] = (
        "rows",
        "batch",
        "reader",
        "CPU us",
        "best",
        "of decoding",
    )
    columns += ("rows/s of CPU", "x tf.data", "private MB", "peak MB")
    print(f"| {' | '.join(columns)} |")
    print(f"|---|---:|---|{'---:|' * 7}")
    rows: list[dict[str, Any]] = []
    for kind in options.rows:
        ways = {
            way: options.tf if way.startswith("tf.data") else sys.executable
            for way in WAYS[kind]
        }
        used = {way: python for way, python in ways.items() if python}
        for batch_size in BATCH_SIZES[kind]:
            n_rows = batch_size if options.quick else N_ROWS[kind]
            found = measured(used, kind, paths[kind], batch_size, n_rows, n_rounds)
            report(found)
            check(found)
            rows += found
    save(options, rows)


if __name__ == "__main__":
    main()
