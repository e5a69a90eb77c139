"""Batches of kept rows.

Goal
    A loader of a dataset that keeps its rows delivers the batches of the same loader
    without `cache`, bit for bit: while the directory is filled and in later epochs, in
    every order, on every rank, for every spec, policy and adapter.
Method
    Generated schemas and records, compared for three epochs: the first decodes, the
    others read the directory. FASTREC_TEST_RUNS sets how many schemas (30).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import fastrec as fr
from campaigns.differential_cases import FORMS, random_record, random_sequence_specs
from campaigns.differential_specs import fastrec_feature
from campaigns.single_rows import random_schema
from children import SEED, n_runs
from columns import Untyped
from kept import exactly
from oracle import tfrecord_file


def generated(rng: random.Random, folder: Path, **options: Untyped) -> Untyped:
    """Return a dataset of generated Examples or SequenceExamples in 1 to 3 files."""
    is_sequence = rng.random() < 0.3
    if is_sequence:
        specs: Any = random_sequence_specs(rng)
        while len({spec.name for spec in specs}) < len(specs):
            specs = random_sequence_specs(rng)
        for part, is_list in (("context", False), ("sequence", True)):
            options[f"{part}_features"] = {
                spec.name: fastrec_feature(spec)
                for spec in specs
                if (spec.section == "lists") == is_list
            }
    else:
        specs, features = random_schema(rng)
        unknown = fr.SerializedTensor()  # rows of any shape cannot be kept
        options["features"] = {
            name: fr.Raw((), "uint8") if spec == unknown else spec
            for name, spec in features.items()
        }
    form = rng.choice(FORMS)
    paths = []
    for i in range(rng.randrange(1, 4)):
        records = [
            random_record(rng, specs, form, is_sequence=is_sequence)
            for _ in range(rng.randrange(12))
        ]
        paths.append(folder / f"{rng.random()}-{i}")
        paths[-1].write_bytes(tfrecord_file(records))
    return fr.open(paths, **options)


@pytest.mark.filterwarnings("ignore:drop_last=True drops all records")
@pytest.mark.filterwarnings("ignore::fastrec.MissingFeatureWarning")
@pytest.mark.parametrize("run", range(n_runs(30)))
def test_kept_rows_of_any_schema_are_those_of_the_files(
    tmp_path: Path, run: int
) -> None:
    rng = random.Random(SEED * 100_000 + run)
    on_error = rng.choice(("raise", "skip", "skip", "mask"))
    ds = generated(rng, tmp_path, on_error=on_error)
    options: dict[str, Any] = {
        "shuffle": rng.choice((False, True, fr.Blocks(block_bytes=300, lanes=3))),
        "num_threads": rng.choice((0, 2)),
        "transform_threads": rng.choice((None, 0, 2)),
        rng.choice(("pad_last", "drop_last")): rng.random() < 0.6,
        "seed": run,
    }
    size = rng.randrange(1, 9)
    kept = ds.cache(tmp_path / "kept")
    for loader in (kept.loader(size, **options), kept.loader(size, **options)):
        plain = ds.loader(size, **options)
        for _ in range(2):
            assert exactly(loader) == exactly(plain)
    if on_error != "raise":
        assert loader.stats.n_kept == loader.stats.n_records
