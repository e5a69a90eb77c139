"""Read mutated and forged images: each is decoded or skipped, in bounded memory.

    python -m campaigns.damaged_images --images 100000 --seed 1

Batches of images, each next to one that is intact, are read with ``on_error="skip"``. An
intact image must be delivered with its pixels, and every other one must be delivered or
reported as a `SchemaError` or `LimitError`. The peak of memory while a batch is read may
exceed the memory before by what the largest allowed image needs, and not by more.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import resource
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image

import fastrec as fr

HEIGHT, WIDTH = 24, 40
IMAGES_OF_BATCH = 64
LIMITS = fr.Limits(max_image_pixels=1_000_000)
# For 1,000,000 pixels: a JPEG decoder may keep all coefficients (2 bytes for each of 3
# channels), and there are RGBA, 16 bits, the copy that is converted, and the heap.
MAX_PEAK_BYTES = 48 << 20
# An allocation of gigabytes fails, so that it cannot take the memory of the machine.
MAX_ADDED_ADDRESSES = 4 << 30
FITS = ("exact", "resize", "center_crop", "random_resized_crop")
# The reasons why an image may be skipped.
REASONS = {
    "damaged": "must be an intact image",
    "of another kind": "must be a JPEG, PNG or WebP image",
    "without pixels": "must be an image with pixels",
    "of another size": "must be an image of height",
    "of too many pixels": "is an image of",
    "of too many scans": "is a JPEG file of",
}
# The lengths that a header may claim.
CLAIMS = (0, 1, 12, 2**16, 2**20, 2**27, 2**30, 2**31 - 1, 2**31, 2**32 - 12, 2**32 - 1)


def smooth() -> PIL.Image.Image:
    """Return an image of smooth random colors."""
    small = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    return PIL.Image.fromarray(small).resize((WIDTH, HEIGHT))


def encoded(image: PIL.Image.Image, kind: str, **options: object) -> bytes:
    """Return the file of an image."""
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def intact_files() -> list[bytes]:
    """Return files of every kind."""
    picture = smooth()
    wide = PIL.Image.fromarray(
        np.arange(HEIGHT * WIDTH, dtype="u2").reshape(HEIGHT, -1)
    )
    frames = {"save_all": True, "append_images": [picture.rotate(90)]}
    return [
        encoded(picture, "JPEG", quality=90),
        encoded(picture, "JPEG", progressive=True),
        encoded(picture, "JPEG", subsampling=0, restart_marker_blocks=2),
        encoded(picture.convert("L"), "JPEG"),
        encoded(picture.convert("CMYK"), "JPEG"),
        encoded(picture, "PNG"),
        encoded(picture.convert("RGBA"), "PNG"),
        encoded(picture.quantize(16), "PNG"),
        encoded(wide, "PNG"),
        encoded(picture, "PNG", **frames),
        encoded(picture, "WEBP", quality=80),
        encoded(picture, "WEBP", lossless=True),
        encoded(picture.convert("RGBA"), "WEBP", exif=b"Exif\0\0" + bytes(20)),
        encoded(picture, "WEBP", **frames),
    ]


# Mutations of any bytes.


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, most often in the headers."""
    mutated = bytearray(data)
    end = len(data) if rng.integers(2) else min(len(data), 64)
    for at in rng.integers(0, end, rng.integers(1, 5)):
        mutated[at] ^= 1 << int(rng.integers(8))
    return bytes(mutated)


def overwrite(data: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite a few bytes with the same value."""
    at, n = int(rng.integers(len(data))), int(rng.integers(1, 9))
    value = bytes([int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))])
    return (data[:at] + value * n + data[at + n :])[: len(data)]


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    """Remove the end, or a part."""
    first, last = sorted(rng.integers(1, len(data), 2).tolist())
    return data[:first] if rng.integers(2) else data[:first] + data[last:]


def repeat(data: bytes, rng: np.random.Generator) -> bytes:
    """Repeat a part."""
    first, last = sorted(rng.integers(0, len(data), 2).tolist())
    return data[:last] + data[first:last] * int(rng.integers(1, 20)) + data[last:]


def splice(data: bytes, rng: np.random.Generator) -> bytes:
    """Continue with another file."""
    other = FILES[int(rng.integers(len(FILES)))]
    return data[: rng.integers(len(data))] + other[rng.integers(len(other)) :]


# Forgeries: files whose headers claim more, or less, than they have.


def claimed(rng: np.random.Generator) -> int:
    """Return a length to claim."""
    return int(rng.choice(CLAIMS))


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the type and the data of each chunk of a PNG file."""
    chunks, at = [], 8
    while at < len(data):
        (n,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + n]))
        at += 12 + n
    return chunks


def png_chunk(kind: bytes, data: bytes, length: int | None = None) -> bytes:
    """Return a chunk with a valid checksum, which may claim another length."""
    length = len(data) if length is None else length
    return struct.pack(">I", length) + kind + data + crc(kind + data)


def crc(data: bytes) -> bytes:
    """Return the checksum of a chunk."""
    return struct.pack(">I", zlib.crc32(data))


def forge_png(data: bytes, rng: np.random.Generator) -> bytes:
    """Claim other lengths, sizes or numbers of frames, with valid checksums."""
    chunks = png_chunks(data)
    place = int(rng.integers(len(chunks)))
    kind, body = chunks[place]
    way = rng.integers(4)
    if way == 0:  # a chunk of another length
        forged = png_chunk(kind, body, claimed(rng))
    elif way == 1:  # a chunk more
        kinds = [b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"PLTE", b"IDAT", b"acTL"]
        more = png_chunk(kinds[rng.integers(len(kinds))], body[:64], claimed(rng))
        forged = png_chunk(kind, body) + more
    elif way == 2:  # the header, or that of a frame
        place = next((i for i, c in enumerate(chunks) if c[0] == b"fcTL"), 0)
        kind, body = chunks[place if rng.integers(2) else 0]
        at = 4 * (kind == b"fcTL") + 4 * int(rng.integers(2))
        size = struct.pack(">I", int(rng.choice([0, 1, 25_000, *CLAIMS])))
        forged = png_chunk(kind, body[:at] + size + body[at + 4 :])
        place = place if kind == b"fcTL" else 0
    else:  # pixels that expand without end
        place = next(i for i, c in enumerate(chunks) if c[0] == b"IDAT")
        forged = png_chunk(b"IDAT", zlib.compress(bytes(1 << 22), 9))
    parts = [png_chunk(*chunk) for chunk in chunks]
    parts[place] = forged
    return data[:8] + b"".join(parts)


def jpeg_segments(data: bytes) -> list[tuple[int, int]]:
    """Return the begin of each marker, and of the one after it."""
    begins = [
        at
        for at in range(len(data) - 1)
        if data[at] == 0xFF and data[at + 1] not in {0, 0xFF, *range(0xD0, 0xD8)}
    ]
    return [*zip(begins, [*begins[1:], len(data)], strict=True)]


def forge_jpeg(data: bytes, rng: np.random.Generator) -> bytes:
    """Repeat scans, claim another size, or another length of a segment."""
    segments = jpeg_segments(data)
    way = rng.integers(4)
    if way == 0:  # scans, with or without their data
        scans = [s for s in segments if data[s[0] + 1] == 0xDA]
        begin, end = scans[rng.integers(len(scans))]
        if rng.integers(2):
            end = begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big")
        n = int(rng.choice([2, 50, 95, 101, 1000, 20_000]))
        return data[:-2] + data[begin:end] * n + data[-2:]
    if way == 1:  # any segment, many times
        begin, end = segments[rng.integers(1, len(segments))]
        return data[:end] + data[begin:end] * int(rng.choice([1, 10, 500])) + data[end:]
    frames = [s for s in segments if data[s[0] + 1] in {0xC0, 0xC2}]
    if way == 2 and frames:  # the size
        begin, _ = frames[0]
        at = begin + 5 + 2 * int(rng.integers(2))
        size = struct.pack(">H", int(rng.choice([0, 1, 1000, 25_000, 65_535])))
        forged = data[:at] + size + data[at + 2 :]
        # Or a second header, after the first.
        begin, end = frames[0]
        return (
            forged if rng.integers(2) else data[:end] + forged[begin:end] + data[end:]
        )
    begin, _ = segments[rng.integers(1, len(segments))]
    length = struct.pack(">H", claimed(rng) & 0xFFFF)
    return data[: begin + 2] + length + data[begin + 4 :]


def forge_webp(data: bytes, rng: np.random.Generator) -> bytes:
    """Claim other lengths of chunks, another canvas, or other frames."""
    chunks, at = [], 12
    while at + 8 <= len(data):
        (n,) = struct.unpack_from("<I", data, at + 4)
        chunks.append(at)
        at += 8 + n + n % 2
    begin = chunks[rng.integers(len(chunks))]
    way = rng.integers(4)
    if way == 0:  # the length of a chunk, or of the file
        at = int(rng.choice([4, begin + 4]))
        return data[:at] + struct.pack("<I", claimed(rng)) + data[at + 4 :]
    if way == 1:  # its content: sizes come first
        mutated = bytearray(data)
        for _ in range(rng.integers(1, 7)):
            at = begin + 8 + int(rng.integers(16))
            mutated[at : at + 1] = rng.choice([b"\0", b"\xff", b"\x3f"]).tobytes()
        return bytes(mutated)
    if way == 2:  # a canvas around another image
        sizes = [(0).to_bytes(3, "little"), (46).to_bytes(3, "little"), b"\xff" * 3]
        canvas = sizes[rng.integers(3)] + sizes[rng.integers(3)]
        flags = bytes([int(rng.choice([0, 2, 0x10, 0x12, 0x3E])), 0, 0, 0])
        body = b"WEBPVP8X" + struct.pack("<I", 10) + flags + canvas + data[12:]
        return b"RIFF" + struct.pack("<I", len(body)) + body
    more = data[begin : begin + 200] * int(rng.choice([1, 100, 2000]))
    body = data[8:] + more
    return b"RIFF" + struct.pack("<I", len(body)) + body


FILES = intact_files()
MUTATIONS: list[Callable[[bytes, np.random.Generator], bytes]] = [
    flip,
    overwrite,
    cut,
    repeat,
    splice,
]


def mutated(rng: np.random.Generator) -> tuple[str, bytes]:
    """Return a mutated or forged file, and what was done."""
    data = FILES[int(rng.integers(len(FILES)))]
    if rng.integers(2):
        mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
    elif data[0] == 0xFF:
        mutation = forge_jpeg
    else:
        mutation = forge_png if data[0] == 0x89 else forge_webp
    return mutation.__name__, mutation(data, rng)


def memory(field: str) -> int:
    """Return a size of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise ValueError(field)


def read_batch(path: Path, seed: int, number: int) -> Counter[str]:
    """Write a batch and read it; return how many images had which outcome."""
    rng = np.random.default_rng([seed, number])
    images = [mutated(rng) for _ in range(IMAGES_OF_BATCH)]
    good = FILES[number % len(FILES)]
    files = [data for _, data in images]
    fr.write(path, {"image": [good, *files, good]}, overwrite=True)
    fit = FITS[number % len(FITS)]
    shape = (HEIGHT, WIDTH) if fit == "exact" else (16, 16)
    spec = fr.Image(shape, fit=fit, channels=(3, 1, 4)[number % 3])  # type: ignore[arg-type]
    ds = fr.open(path, features={"image": spec}, limits=LIMITS)
    loader = ds.loader(len(files) + 2, on_error="skip", transform_threads=1)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak
    before = memory("VmHWM")
    (batch,) = loader
    added = memory("VmHWM") - before
    pixels = np.asarray(batch["image"])
    n_skipped = sum(region.records or 0 for region in loader.report)
    assert len(pixels) + n_skipped == len(files) + 2, (len(pixels), n_skipped)
    if fit != "random_resized_crop":
        assert (pixels[0] == pixels[-1]).all()
        assert (pixels[0] == ds[0]["image"]).all()
    counts = Counter(runs=len(files), peak=added, delivered=len(pixels) - 2)
    for region in loader.report:
        (outcome,) = [name for name, text in REASONS.items() if text in region.reason]
        counts[outcome] += region.records or 0
    return counts


def check_images(seed: int, n_images: int) -> dict[str, int]:
    """Read this many images; return the outcomes and the peak of memory."""
    total: Counter[str] = Counter()
    peak = slowest = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.tfrecord"
        read_batch(path, seed, 0)  # imports and allocates
        limit = memory("VmSize") + MAX_ADDED_ADDRESSES
        old = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, old[1]))
        try:
            for number in range(1, 1 + -(-n_images // IMAGES_OF_BATCH)):
                begin = time.monotonic()
                counts = read_batch(path, seed, number)
                slowest = max(slowest, round(1000 * (time.monotonic() - begin)))
                added = counts.pop("peak")
                assert added < MAX_PEAK_BYTES, f"{added:,} bytes for batch {number}"
                peak = max(peak, added)
                total += counts
        finally:
            resource.setrlimit(resource.RLIMIT_AS, old)
    return {**total, "MB at the peak": peak >> 20, "ms for the slowest batch": slowest}


def main() -> None:
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # libjpeg and libpng print a line for each damaged image.
    sys.stderr = os.fdopen(os.dup(2), "w")
    faulthandler.enable(sys.stderr)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.getLogger("fastrec").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(check_images(options.seed, options.images)) + "\n")


if __name__ == "__main__":
    main()
