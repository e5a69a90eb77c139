"""KeptRows: where the rows of a source are kept, and the rows of one batch."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastrec import _core
from fastrec.arrays.batch import Batch
from fastrec.errors import CorruptionError
from fastrec.kept.key import Kept, only
from fastrec.kept.store import RowStore
from fastrec.sources.file_set import FileSet
from fastrec.sources.selection import Numbers, numbers_at
from fastrec.sources.source import Reading, Source
from fastrec.storage.paths import versions_of


class KeptRows:
    """The stores of a source, one for each reading, and the row of each record.

    Raises a CorruptionError if a file changed after it was indexed.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        files, (readings, of_files) = source.files, source.readings()
        begins = [0, *itertools.accumulate(source.n_numbered_by_file())]
        ends = [0, *itertools.accumulate(reading.n_files for reading in source.given)]
        self._pieces = None if source.is_whole else source.records()
        # Of each run of files: its first record and its reading.
        self._begins = np.array([begins[first] for first in ends], np.int64)
        self._readings = np.array([of_files[first] for first in ends[:-1]])
        self.readings = readings
        self.stores: list[RowStore | None] = [None] * len(readings)
        # What the index has, and not one that another dataset builds later.
        self._versions = [scan.version for scan in files.scans()]
        self.check_unchanged(range(len(of_files)))
        for reading, run in zip(self._readings, itertools.pairwise(ends), strict=True):
            if (kept := readings[reading].kept) is None:
                continue
            is_one = len(self._readings) == 1
            of_run = files if is_one else files.part(range(*run))
            n_rows = begins[run[1]] - begins[run[0]]
            key = _key(kept, readings[reading], of_run, n_rows)
            if (store := self.stores[reading]) is None:
                self.stores[reading] = _store(source, kept.directory, key)
            else:  # datasets that are joined more than once
                store.check(key)

    def check_unchanged(self, numbers: Sequence[int]) -> None:
        """Raise an error if one of these files changed after it was indexed."""
        files = self._source.files
        versions = versions_of([files.paths[i] for i in numbers])
        for i, version in zip(numbers, versions.tolist(), strict=True):
            if self._versions[i] != tuple(version):
                raise CorruptionError(
                    "the file changed after it was indexed, and rows of both versions "
                    "must not be kept; open the dataset again",
                    files.files[i],
                    code="file_changed",
                )

    def check_records(self, records: Numbers) -> None:
        """Raise an error if a file of these records changed after it was indexed."""
        places = self._source.places(records[records >= 0])
        self.check_unchanged(np.unique(places[:, 0]).tolist())

    def whole(self, records: Numbers, pool: _core.BlockPool) -> Batch | None:
        """Return the batch of these records if all are kept in the only store."""
        rows = records
        if self._pieces is not None or len(self._readings) > 1:
            _, rows = self.find(records, pool)
        kept, store = self.readings[0].kept, self.stores[0]
        assert kept is not None
        assert store is not None
        batch, is_kept = store.gather(rows, kept.delivered, pool)
        is_whole = np.count_nonzero(is_kept) == len(records)  # faster than all()
        return only(batch, kept.delivered) if batch and is_whole else None

    def find(
        self, records: Numbers, pool: _core.BlockPool
    ) -> tuple[npt.NDArray[np.intp], Numbers]:
        """Return each record's reading, and its row in the store; -1 to decode it.

        Padding has the reading of the last record, and the row of padding.
        """
        valid = records[: np.count_nonzero(records >= 0)]
        numbers = valid if self._pieces is None else numbers_at(self._pieces, valid)
        runs = np.searchsorted(self._begins, numbers, side="right") - 1
        rows = numbers - self._begins[runs]
        if n_padding := len(records) - len(valid):
            last = int(runs[-1]) if len(runs) else 0
            store = self.stores[self._readings[last]]
            padding = np.full(n_padding, -1 if store is None else store.padding)
            if store is not None and len(self.stores) > 1:
                _, is_kept = store.gather(padding[:1], (), pool)
                if not is_kept.all():  # the core needs a row to know the schema
                    rows[-1:] = -1
            runs = np.append(runs, np.full(n_padding, last))
            rows = np.append(rows, padding)
        return self._readings[runs], rows


def _store(source: Source, directory: str, key: dict[str, Any]) -> RowStore:
    """Return the kept rows in a directory; their files stay mapped between epochs."""
    store: RowStore | None = source.row_stores.get(directory)
    if store is None or not store.renewed(key):
        store = source.row_stores[directory] = RowStore(directory, key)
    return store


def _key(kept: Kept, reading: Reading, files: FileSet, n_rows: int) -> dict[str, Any]:
    """Return what identifies the rows that are kept of these files, as JSON."""
    digest = hashlib.blake2b(digest_size=16)
    files.add_to(digest)
    digest.update(versions_of(files.files).tobytes())  # not of their copies
    schema, steps = reading.schema, reading.steps
    features = {
        str(name): [schema._row_type(name), repr(spec)] for name, spec in schema.items()
    }
    of_steps = {}
    if steps is not None:
        of_steps["steps"] = repr(steps.rule)
        for name, offsets in steps.windows.items():
            features[str(name)].append(repr(offsets))
    return {
        "n_rows": n_rows,
        **of_steps,
        "files": digest.hexdigest(),
        "features": features,
        "transforms": [*kept.transforms],
        "selection": None if kept.columns is None else [*kept.columns],
    }
