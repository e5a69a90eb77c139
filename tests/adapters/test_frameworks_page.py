"""docs/frameworks.md: the code there runs.

Goal
    Whoever copies a block of the page has code that works, with data and a model.
Method
    Every Python block is run with the names it takes for granted, where the frameworks
    of its section are installed. In place of a CUDA device there is the CPU.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import fastrec as fr
from columns import Untyped

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
N_RECORDS = 600

# The packages of each section that has code, and their names there.
SECTIONS = {
    "PyTorch": {"torch": "torch"},
    "JAX": {"jax": "jax"},
    "Keras": {"keras": "keras"},
    "TensorFlow": {"keras": "keras", "tensorflow": "tf"},
    "Arrow": {"pyarrow": "pa", "polars": "pl", "duckdb": "duckdb", "pandas": "pd"},
    "Grain": {"grain": "grain"},
}


def blocks() -> list[Untyped]:
    """Each block with its section, marked as its section's tests are."""
    found = []
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        name = re.split(r"\W", section, maxsplit=1)[0]
        mark = pytest.mark.oracle if name == "TensorFlow" else pytest.mark.frameworks
        for i, block in enumerate(
            re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        ):
            found.append(pytest.param(name, block, marks=mark, id=f"{name}{i}"))
    return found


def of_torch(names: dict[str, Untyped]) -> dict[str, Untyped]:
    torch = names["torch"]
    linear = torch.nn.Linear(28 * 28, 10)
    return {
        "model": lambda image: linear(image.reshape(-1, 28 * 28).float()),
        "criterion": torch.nn.functional.cross_entropy,
        "DataLoader": torch.utils.data.DataLoader,
    }


def of_jax(names: dict[str, Untyped]) -> dict[str, Untyped]:
    jax = names["jax"]
    return {
        "mesh": jax.sharding.Mesh(np.array(jax.devices()[:1]), "batch"),
        "NamedSharding": jax.sharding.NamedSharding,
        "PartitionSpec": jax.sharding.PartitionSpec,
        "params": 0.0,
        "step": jax.jit(lambda params, batch: (params + batch["image"].mean(), params)),
    }


def of_keras(names: dict[str, Untyped]) -> dict[str, Untyped]:
    keras = names["keras"]
    model = keras.Sequential(
        [
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return {"model": model}


MADE = {"PyTorch": of_torch, "JAX": of_jax, "Keras": of_keras, "TensorFlow": of_keras}


def test_the_page_has_code_in_every_section() -> None:
    assert {block.values[0] for block in blocks()} == set(SECTIONS)


@pytest.mark.parametrize(("section", "block"), blocks())
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_block_runs(
    section: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = SECTIONS[section]
    names: dict[str, Untyped] = {
        name: pytest.importorskip(package) for package, name in packages.items()
    }
    if "keras" in names and section == "Keras":
        pytest.importorskip("torch")
        if importlib.import_module("keras").backend.backend() == "tensorflow":
            pytest.skip("Keras was imported with the backend tensorflow before")
    spec = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}
    images = np.random.default_rng(0).integers(0, 256, (N_RECORDS, 28, 28), np.uint8)
    columns = {"image": images, "label": np.arange(N_RECORDS) % 10}
    monkeypatch.chdir(tmp_path)
    fr.write("train-0.tfrecord", columns, features=spec)
    ds = fr.open("train-*.tfrecord", features=spec)
    names |= {"fr": fr, "ds": ds, "other": ds}
    names |= MADE.get(section, dict)(names)
    exec(compile(block.replace('"cuda"', '"cpu"'), str(PAGE), "exec"), names)  # noqa: S102
