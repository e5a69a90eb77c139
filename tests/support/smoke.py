"""Write a file and read it back: what an installed wheel must be able to do."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fastrec as fr
from fastrec import _core

N_RECORDS = 1000

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "numbers.tfrecord")
    fr.write(path, {"x": np.arange(N_RECORDS)})
    batches = list(fr.open(path).loader(64, shuffle=True, seed=0))
read = np.concatenate([batch["x"] for batch in batches])
if not np.array_equal(np.sort(read), np.arange(N_RECORDS)):
    msg = "the records read are not the records written"
    raise SystemExit(msg)
print(f"{N_RECORDS} records written and read with {_core.isas()[0]}")  # noqa: T201
