"""The first rows of a dataset, for display: from the first file, without an index."""

from __future__ import annotations

import itertools

from fastrec import _core
from fastrec.arrays.batch import Batch, Row, row_of
from fastrec.features.schema import Schema
from fastrec.sources.source import Source
from fastrec.storage.stream_readers import frame_stream

_SAMPLE_RECORDS = 16  # for a schema that is not known yet


def first_rows(source: Source, n: int) -> tuple[Schema, list[Row]]:
    """Return the schema and up to `n` rows of a source, before transforms.

    Only the beginning of the first file is read. A schema that is not known yet is
    inferred from its first records. Rows of a selection are read by number; those of a
    mix are not read.

    Raises
    ------
    Error
        If a record cannot be read, or the schema cannot be inferred.
    """
    first = source.of_first_file(_SAMPLE_RECORDS)
    records: list[bytes] = []
    if source.is_walkable:
        contents = first.files.contents()
        of_first = (first.files.table, [0], first.files.recovery)
        with frame_stream(contents, *of_first) as frames:
            records = list(itertools.islice(iter(frames.next, None), n))
    elif not source.is_mixed:
        catalog = source.catalog()  # of a selection: the files have their indexes
        numbers = range(min(n, len(catalog)))
        records = [_core.read_record(source.files.table, catalog, i) for i in numbers]
    schema = first.schema
    batch: Batch = _core.parse_examples(schema._bind(), _core.BlockPool(0), records)
    return schema, [row_of(batch, i) for i in range(len(records))]
