"""The code blocks of README.md and docs/.

``python pages.py PAGE SECTION MARK`` runs the blocks of a section in one namespace, after
those before the first section. It needs an empty current folder, and writes the skipped
blocks to skipped.json there. A Python block is skipped if a package that it imports is
not installed, or if it has another mark. Without OpenCV, the blocks after it are, too:
they use its images. Of a shell block, the fastrec commands run.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")),
]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")
# The last line of a page whose sections continue each other.
ONE_PROGRAM = "<!-- one program -->\n"
# Packages that the extra "frameworks" has, or that other readers' code needs.
FRAMEWORKS = {
    *("accelerate", "datasets", "duckdb", "grain", "jax", "keras", "lightning"),
    *("nvidia", "pandas", "polars", "ray", "tfrecord", "torch", "torchdata"),
    *("transformers", "webdataset"),
}

# What `fr.NAME` imports. The data sets that pages open with open_tfds have images.
IMPORTED = {
    **{name: name for name in ("grain", "jax", "keras", "polars", "ray", "torch")},
    **dict.fromkeys(("Image", "decode_image", "open_tfds"), "cv2"),
    "tf": "tensorflow",
}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    section: str  # The heading above it; empty before the first one.
    line: int  # Of the first line of code, from 1.
    language: str
    code: str
    reason_not_run: str | None

    @property
    def imports(self) -> list[str]:
        """Top-level packages that a Python block imports, itself or through `fr.NAME`."""
        names = []
        for node in ast.walk(ast.parse(self.code)) if self.language == "python" else ():
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.append(node.module)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fr":
                names += [IMPORTED[node.attr]] if node.attr in IMPORTED else []
        return [name.partition(".")[0] for name in names]

    @property
    def mark(self) -> str:
        """The mark of a test that runs the block; empty if it needs no framework."""
        if "tensorflow" in self.imports:
            return "oracle"
        return "frameworks" if FRAMEWORKS.intersection(self.imports) else ""

    @property
    def missing(self) -> str | None:
        """A package that the block imports and that is not installed."""
        for name in self.imports:
            if importlib.util.find_spec(name) is None:
                return name
        return None

    @property
    def commands(self) -> list[str]:
        """The fastrec commands of a shell block."""
        lines = self.code.replace("\\\n", " ").splitlines()
        lines = [line.removeprefix("$ ").strip() for line in lines]
        return [line for line in lines if line.startswith("fastrec ")]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that hold code."""
    text = (ROOT / page).read_text("utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^## (.+)$", before, re.MULTILINE)
        if text.endswith(ONE_PROGRAM):
            headings = []
        not_run = NOT_RUN.search(before)
        language = {"console": "sh", "bash": "sh"}.get(
            match["language"], match["language"]
        )
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        if language in {"python", "sh"}:
            found.append(
                Block(
                    page,
                    headings[-1] if headings else "",
                    before.count("\n") + 2,
                    language,
                    code,
                    not_run[1] if not_run else None,
                )
            )
    return found


def set_up() -> dict[str, Any]:
    """Write the files that pages name; return the names that they take for granted."""
    import numpy as np

    import fastrec as fr
    from oracle_example import sequence
    from oracle_frames import tfrecord_file

    data = Path("data")
    data.mkdir()
    Path("docs/images").mkdir(
        parents=True
    )  # a command of docs/shuffling.md writes there
    rng = np.random.default_rng(0)
    n = 300
    for f in range(2):
        with fr.Writer(data / f"train-{f}.tfrecord") as w:
            for i in range(n):
                w.write(
                    {
                        "image": np.full((28, 28), i % 256, np.uint8).tobytes(),
                        "label": i % 10,
                        "weight": 1.0,
                        "tags": ["tag"] * (1 + i % 3),
                        "tokens": rng.integers(0, 1000, 1 + i % 50).tolist(),
                    }
                )
    clip = sequence(
        {b"label": ("int64", [1])},
        {
            b"audio": [("float", [0.5, 1.0])] * 3,
            b"words": [("bytes", [b"a"]), ("bytes", [])],
        },
    )
    (data / "clips.tfrecord").write_bytes(tfrecord_file([clip] * 40))

    def step(*columns: Any) -> None:
        lengths = [len(column) for column in columns]
        if len(set(lengths)) != 1 or lengths[0] == 0:
            msg = f"step() got columns of {lengths} rows"
            raise AssertionError(msg)

    images = rng.integers(0, 256, (n, 28, 28), np.uint8)
    labels = np.arange(n) % 10
    np.savez("arrays.npz", x=rng.random((n, 3)), y=labels)
    for name, array in [("images-idx3", images), ("labels-idx1", np.uint8(labels))]:
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        idx = gzip.compress(header + array.tobytes())
        Path(f"train-{name}-ubyte.gz").write_bytes(idx)
    return {"step": step, "images": images, "labels": labels}


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block; errors show its line of the page."""
    code = "\n" * (block.line - 1) + block.code
    if '"cuda"' in code:
        import torch

        if not torch.cuda.is_available():
            code = code.replace('"cuda"', '"cpu"')
    exec(compile(code, block.page, "exec"), names)  # noqa: S102 (our own page)


def run_shell(block: Block) -> None:
    """Run the fastrec commands of a block whose packages are installed."""
    for command in block.commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            capture_output=True,
            check=False,
            text=True,
        )
        is_missing = "which is not installed: pip install" in done.stderr
        if done.returncode and not is_missing:
            msg = f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
            raise AssertionError(msg)


def reason_to_skip(block: Block, mark: str) -> str | None:
    """Return why a block does not run under a mark, or None if it does."""
    if block.reason_not_run:
        return block.reason_not_run
    if block.mark not in {"", mark}:
        return f"has the mark {block.mark}"
    return f"needs {block.missing}" if block.missing else None


def main(page: str, section: str, mark: str) -> None:
    """Run the blocks of a section."""
    names = set_up()
    has_opencv = importlib.util.find_spec("cv2") is not None
    if has_opencv and "tensorflow_datasets/" in (ROOT / page).read_text("utf-8"):
        from tfds_directory import write_examples

        write_examples(Path("tensorflow_datasets"))
    skipped: dict[int, str] = {}
    for block in blocks_of(page):
        if block.section not in {"", section}:
            continue
        reason = reason_to_skip(block, mark)
        if "needs cv2" in (reason, *skipped.values()):
            skipped[block.line] = "needs cv2"
        elif reason:
            skipped[block.line] = reason
        elif block.language == "sh":
            run_shell(block)
        else:
            run_python(block, names)
    Path("skipped.json").write_text(json.dumps(skipped))


if __name__ == "__main__":
    main(*sys.argv[1:])
