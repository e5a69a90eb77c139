"""Peer: the `tfr-reader` package, a decoder behind an index in a data frame.

Its decoder by protobuf takes half the time of its Cython one, which it uses unasked, on
many values, and is as fast on short byte strings; on long ones the Cython one is faster.

Records are fetched one by one through `TFRecordFileReader`, one for each file: the
dataset's own indexing opens the file again for every record, which is several times
slower. Its index is made beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tfr_reader

from peers.reader import Reader, Setup
from peers.rows import column, stack
from truth import Columns

__all__ = ["PeerReader"]


class PeerReader(Reader):
    """Its index, in order or in a new random order in every epoch, and its decoder."""

    checks = "none"

    def __init__(self, setup: Setup) -> None:
        setup.refuse(
            forms=["cython", "protobuf"],
            threads="decodes under the interpreter's lock",
            gzip="its index is one of plain files",
            sequence="knows no SequenceExamples",
        )
        super().__init__(setup)
        # Tens of thousands of records a second: the first file is enough.
        self.files = self.files[:1]
        is_large = self.workload.record_bytes > 100_000
        decoder = setup.form or ("cython" if is_large else "protobuf")
        tfr_reader.set_decoder_type(decoder)
        self.form = f"get_example ({decoder}), stacked; first file only"
        self.is_shuffled = setup.is_shuffled
        names = ("tfr-reader", "protobuf")
        self.versions = {name: version(name) for name in names}
        folder = Path(self.files[0]).parent
        dataset = tfr_reader.load_from_directory(folder)
        first = dataset.index_df["tfrecord_filename"] == Path(self.files[0]).name
        self.index = dataset.index_df.filter(first)

    def epoch(self) -> Iterator[dict[str, Any]]:
        """Batches of stacked records."""
        index = self.index
        if self.is_shuffled:
            index = index.sample(fraction=1, shuffle=True)
        spans = list(zip(index["tfrecord_start"], index["tfrecord_end"], strict=True))
        features = self.workload.features
        with tfr_reader.TFRecordFileReader(self.files[0]) as reader:
            for begin in range(0, len(spans), self.batch_size):
                rows = [
                    reader.get_example(*span)
                    for span in spans[begin : begin + self.batch_size]
                ]
                yield {
                    f.name: stack(f, [row[f.name].value for row in rows])
                    for f in features
                }

    def columns(self, batch: Any) -> Columns:
        """A batch in the words of `truth`."""
        return {f.name: column(f, batch[f.name]) for f in self.workload.features}
