"""Measure the decoding of images, compared with tf.data and DALI on the CPU.

The images are generated: smooth noise of many scales, which compresses like photographs.
Every reader runs in its own process, and the processes take turns. CPU time counts
all threads; the rate by the wall clock is meaningful only on an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__: list[str] = []

HEIGHT, WIDTH, SIDE = 400, 500, 224  # of the images, and of the resized ones
BATCH_SIZE = 64
FORMATS = {"jpeg": (".jpg", 90), "png": (".png", 3), "webp": (".webp", 80)}
PEERS = ("fastrec", "tf.data", "tf.data accurate", "dali")

# Reads an epoch, and returns the number of images and the last batch.
Epoch = Callable[[], tuple[int, Any]]


def photograph(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return noise of many scales, with the most energy in the large ones."""
    import cv2

    image: Any = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for n in (2, 4, 8, 16, 32, 64, 128):
        noise = rng.normal(size=(n * HEIGHT // WIDTH + 2, n + 2, 3)).astype(np.float32)
        scaled = cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
        image += scaled / n**0.9
    image += rng.normal(size=image.shape).astype(np.float32) * 0.02
    low, high = image.min(), image.max()
    pixels: npt.NDArray[np.uint8] = ((image - low) * (255 / (high - low))).astype("u1")
    return pixels


def generate(folder: Path, n_images: int) -> None:
    """Write a file for each format, unless it exists; 64 images are repeated."""
    import cv2

    import fastrec as fr

    rng = np.random.default_rng(0)
    pictures = [photograph(rng) for _ in range(min(64, n_images))]
    quality = {"jpeg": cv2.IMWRITE_JPEG_QUALITY, "png": cv2.IMWRITE_PNG_COMPRESSION}
    quality["webp"] = cv2.IMWRITE_WEBP_QUALITY
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (suffix, level) in FORMATS.items():
        path = folder / f"{kind}-{n_images}.tfrecord"
        if path.exists():
            continue
        files = [
            cv2.imencode(suffix, picture, [quality[kind], level])[1].tobytes()
            for picture in pictures
        ]
        images = [files[i % len(files)] for i in range(n_images)]
        fr.write(path, {"image": images, "label": np.arange(n_images)})
        n_bytes = sum(map(len, files)) // len(files)
        print(f"{kind}: {n_images:,} images of {n_bytes:,} bytes")


def fastrec_epoch(path: str, fit: str, n_threads: int, _: bool) -> Epoch:
    """Read through a loader."""
    import fastrec as fr

    shape = (HEIGHT, WIDTH) if fit == "exact" else (SIDE, SIDE)
    options: Any = {"fit": "exact" if fit == "exact" else "resize"}
    image = fr.Image(shape, **options, antialias=fit == "antialias")
    ds = fr.open(path, features={"image": image, "label": fr.FixedLen((), "int64")})
    # One core decodes images and records, or each of two does.
    loader = ds.loader(
        BATCH_SIZE, transform_threads=n_threads, num_threads=min(1, n_threads - 1)
    )

    def epoch() -> tuple[int, Any]:
        n = 0
        for batch in loader:
            n += len(batch["label"])
        return n, batch["image"]

    return epoch


def tf_epoch(path: str, fit: str, n_threads: int, is_accurate: bool) -> Epoch:
    """Read through tf.data: parse and decode in a parallel map, then batch."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    spec = {
        "image": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }

    def pixels(data: Any) -> Any:
        if "jpeg" in Path(path).name:
            method = "INTEGER_ACCURATE" if is_accurate else ""
            return tf.io.decode_jpeg(data, channels=3, dct_method=method)
        if "png" in Path(path).name:
            return tf.io.decode_png(data, channels=3)
        return tf.io.decode_webp(data, channels=3)[0]

    def decode(record: Any) -> Any:
        row = tf.io.parse_single_example(record, spec)
        image = pixels(row["image"])
        if fit != "exact":
            is_smooth = fit == "antialias"
            return tf.image.resize(image, (SIDE, SIDE), antialias=is_smooth), row[
                "label"
            ]
        return tf.ensure_shape(image, (HEIGHT, WIDTH, 3)), row["label"]

    dataset = (
        tf.data.TFRecordDataset(path)
        .map(decode, num_parallel_calls=n_threads)
        .batch(BATCH_SIZE)
        .prefetch(2)
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = n_threads
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(options)

    def epoch() -> tuple[int, Any]:
        n, images = 0, None
        for images, labels in dataset:  # noqa: B007 (the last is returned)
            n += len(labels)
        return n, images

    return epoch


def dali_epoch(path: str, fit: str, n_threads: int, _: bool) -> Epoch:
    """Read through a DALI pipeline on the CPU."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.tfrecord import FixedLenFeature, int64, string

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=BATCH_SIZE, num_threads=n_threads, device_id=None
    )
    def pipeline() -> Any:
        row = fn.readers.tfrecord(
            path=path,
            index_path=path + ".idx",
            features={
                "image": FixedLenFeature((), string, ""),
                "label": FixedLenFeature([1], int64, 0),
            },
            name="reader",
        )
        image = fn.decoders.image(row["image"], device="cpu")
        if fit != "exact":
            image = fn.resize(
                image,
                size=(SIDE, SIDE),
                interp_type=types.INTERP_LINEAR,
                antialias=fit == "antialias",
            )
        return image, row["label"]

    pipe = pipeline()
    pipe.build()
    n_images = pipe.reader_meta("reader")["epoch_size"]

    def epoch() -> tuple[int, Any]:
        for _ in range(n_images // BATCH_SIZE):
            images, _labels = pipe.run()
        return n_images // BATCH_SIZE * BATCH_SIZE, images.as_array()

    return epoch


def work(peer: str, path: str, fit: str, n_threads: int) -> None:
    """Run an epoch for each line of the input, and print its figures as JSON."""
    if not path.endswith(".idx") and peer == "dali":
        write_index(path)
    make = {"fastrec": fastrec_epoch, "dali": dali_epoch}.get(peer, tf_epoch)
    epoch = make(path, fit, n_threads, peer.endswith("accurate"))
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        n, last = epoch()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        mean = float(np.mean(last))
        print(json.dumps({"n": n, "wall": wall, "cpu": cpu, "mean": mean}), flush=True)


def write_index(path: str) -> None:
    """Write the offsets and sizes of the frames, as DALI's tfrecord2idx does."""
    data = Path(path).read_bytes()
    lines, offset = [], 0
    while offset < len(data):
        size = 16 + int.from_bytes(data[offset : offset + 8], "little")
        lines.append(f"{offset} {size}\n")
        offset += size
    Path(path + ".idx").write_text("".join(lines))


class Worker:
    """A process that reads epochs with one peer."""

    def __init__(
        self, python: str, arguments: list[str], script: str = __file__
    ) -> None:
        self._process = subprocess.Popen(
            [python, script, "--worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def epoch(self) -> dict[str, float]:
        """Return the figures of one epoch; raise a RuntimeError if the peer fails."""
        stdin, stdout, stderr = self._pipes()
        try:
            print("epoch", file=stdin, flush=True)
        except BrokenPipeError:
            line = ""
        else:
            line = stdout.readline()
        if not line:
            reason = (stderr.read().strip().splitlines() or ["no output"])[-1]
            raise RuntimeError(reason)
        figures: dict[str, float] = json.loads(line)
        return figures

    def _pipes(self) -> tuple[Any, Any, Any]:
        return self._process.stdin, self._process.stdout, self._process.stderr

    def close(self) -> None:
        """End the process."""
        for pipe in self._pipes():
            with contextlib.suppress(BrokenPipeError):  # it has failed before
                pipe.close()
        self._process.wait()


def measured(
    peers: dict[str, str], path: Path, fit: str, n_threads: int, n_rounds: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each peer, whose epochs take turns."""
    arguments = [str(path), fit, str(n_threads)]
    workers = {peer: Worker(peers[peer], [peer, *arguments]) for peer in peers}
    failures: dict[str, str] = {}
    epochs: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for _ in range(n_rounds + 1):  # the first one warms up
        for peer, worker in workers.items():
            try:
                epochs[peer].append(worker.epoch())
            except RuntimeError as error:
                failures.setdefault(peer, str(error))
    for peer, worker in workers.items():
        worker.close()
        row: dict[str, Any] = {"image": path.stem.split("-")[0], "fit": fit}
        row |= {"threads": n_threads, "peer": peer}
        if peer in failures:
            yield row | {"failure": failures[peer]}
            continue
        costs = [1e3 * epoch["cpu"] / epoch["n"] for epoch in epochs[peer][1:]]
        rates = [epoch["n"] / epoch["wall"] for epoch in epochs[peer][1:]]
        median = statistics.median(costs)
        yield row | {
            "cpu_ms": median,
            "best_ms": min(costs),
            "spread": (max(costs) - min(costs)) / median,
            "images_per_s": max(rates),
            "mean": epochs[peer][-1]["mean"],
        }


def check(rows: list[dict[str, Any]]) -> None:
    """Raise a SystemExit if the peers decode different pixels."""
    means = {row["peer"]: row["mean"] for row in rows if "mean" in row}
    if means and max(means.values()) - min(means.values()) > 1:
        sys.exit(f"the peers decode different pixels: means {means}")


def report(rows: list[dict[str, Any]]) -> None:
    """Print the rows of one case."""
    ours = next((row.get("cpu_ms") for row in rows if row["peer"] == "fastrec"), None)
    for row in rows:
        case = f"| {row['image']} | {row['fit']} | {row['threads']} | {row['peer']} "
        if "failure" in row:
            print(f"{case}| - | - | - | - | {row['failure']} |", flush=True)
            continue
        ratio = row["cpu_ms"] / ours if ours else float("nan")
        print(
            f"{case}| {row['cpu_ms']:.3f} | {row['best_ms']:.3f} | {row['spread']:.0%} "
            f"| {ratio:.2f} | {row['images_per_s']:,.0f} |",
            flush=True,
        )


def add_run_options(parser: argparse.ArgumentParser, n_rounds: int) -> None:
    """Add the options of a run; `n_rounds` is the default."""
    parser.add_argument("--rounds", type=int, default=n_rounds)
    parser.add_argument("--quick", action="store_true", help="few rows, one round")
    parser.add_argument("--json", type=Path)


def save(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write the rows of the table to the file of ``--json``, if any."""
    if options.json:
        options.json.write_text(json.dumps({"quick": options.quick, "rows": rows}))


def main() -> None:
    """Parse the arguments, generate the images and print the table."""
    if "--worker" in sys.argv:
        peer, path, fit, n_threads = sys.argv[2:]
        work(peer, path, fit, int(n_threads))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/image-data"))
    parser.add_argument("--images", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--fits", nargs="+", default=["exact", "resize", "antialias"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--python",
        nargs="*",
        default=[],
        help="the interpreter of a peer: dali=envs/dali/bin/python",
    )
    add_run_options(parser, n_rounds=7)
    options = parser.parse_args()
    n_images, n_rounds = (64, 1) if options.quick else (1024, options.rounds)
    pythons = dict(item.split("=", 1) for item in options.python)
    peers = {
        peer: pythons.get(peer.split()[0], sys.executable) for peer in options.peers
    }
    generate(options.data, n_images)
    columns = ("image", "fit", "threads", "reader", "CPU ms", "best", "spread")
    print(f"| {' | '.join(columns)} | of fastrec | images/s |")
    print("|---|---|---:|---|---:|---:|---:|---:|---:|")
    rows: list[dict[str, Any]] = []
    for kind in options.images:
        for fit in options.fits:
            for n_threads in options.threads:
                path = options.data / f"{kind}-{n_images}.tfrecord"
                used = {p: peers[p] for p in peers if kind == "jpeg" or "accu" not in p}
                found = list(measured(used, path, fit, n_threads, n_rounds))
                report(found)
                check(found)
                rows += found
    save(options, rows)


if __name__ == "__main__":
    main()
