"""Records of files with their places, and their features without a schema."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import fastrec as fr
from fastrec import _core
from fastrec.cli.inputs import indexed
from fastrec.cli.preview import aligned, preview
from fastrec.cli.sql import matching_rows
from fastrec.cli.terminal import counted, json_line, json_path, printable
from fastrec.hints import no_column

if TYPE_CHECKING:
    from rich.console import Console

Numbers: TypeAlias = npt.NDArray[np.int64]

_MAX_STEPS = 3


class PlacedRecord(NamedTuple):
    """The bytes of a record, and its number in its file."""

    path: str
    number: int
    data: bytes


def first_records(files: Sequence[str]) -> Iterator[PlacedRecord]:
    """Yield the records of files in order. It needs no index, and opens no file early."""
    for path in files:
        records = fr.read_records(path, num_threads=0)
        for number, data in enumerate(records):
            yield PlacedRecord(path, number, data)


def records_at(files: Sequence[str], numbers: Numbers) -> Iterator[PlacedRecord]:
    """Yield the records with ascending `numbers` over all files.

    It indexes the files up to the last of these records.
    """
    for path in files:
        if not len(numbers):
            return
        (n_records,) = indexed([path])[0].values()
        here = numbers[numbers < n_records]
        yield from _records_of(path, here)
        numbers = numbers[len(here) :] - n_records


def sampled_records(
    files: Sequence[str], n: int, seed: int, where: str | None = None
) -> list[PlacedRecord]:
    """Return up to `n` records of the files, chosen at random, in their order."""
    counts, _ = indexed(files)
    numbers: Numbers = np.arange(sum(counts[path] for path in files))
    if where is not None:
        numbers = matching_rows(fr.open(files), where)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(numbers, min(n, len(numbers)), replace=False)
    return list(records_at(files, np.sort(chosen)))


def _records_of(path: str, numbers: Numbers) -> Iterator[PlacedRecord]:
    """Yield the records of one file with ascending `numbers`."""
    ds = fr.open(path)
    if not ds.is_streamed:
        records = ds.select(numbers).records
        for number, data in zip(numbers.tolist(), records, strict=True):
            yield PlacedRecord(path, number, data)
        return
    wanted = set(numbers.tolist())
    for number, data in enumerate(ds.records):
        if number in wanted:
            yield PlacedRecord(path, number, data)
            wanted.remove(number)
        if not wanted:
            return


# Printing.


class _Message(NamedTuple):
    """The context features and feature lists of a record, by name."""

    context: dict[str | bytes, Any]
    lists: dict[str | bytes, list[Any]]

    def chosen(self, names: Sequence[str]) -> _Message:
        """Return the features with one of `names`, in their order."""
        return _Message(
            {name: self.context[name] for name in names if name in self.context},
            {name: self.lists[name] for name in names if name in self.lists},
        )


def message_of(data: bytes) -> _Message | None:
    """Return the features of a record, or None if it is another message."""
    with contextlib.suppress(fr.DecodeError):
        return _Message(*fr.decode_sequence_example(data))
    with contextlib.suppress(fr.DecodeError):  # a field 2 that is not lists is unknown
        return _Message(fr.decode_example(data), {})
    return None


def print_records(
    out: Console,
    records: Iterable[PlacedRecord],
    columns: list[str] | None,
    *,
    as_json: bool,
) -> int:
    """Print records, and return how many there were.

    Raises
    ------
    Error
        If no record has one of the `columns`.
    """
    n_printed = 0
    missing, known = set(columns or ()), set[str]()
    for record in records:
        message = message_of(record.data)
        if message is not None:
            names = {str(name) for part in message for name in part}
            missing -= names
            known |= names
            message = message if columns is None else message.chosen(columns)
        if as_json:
            out.print(json_line(_fields(record, message)))
        else:
            lines = _lines(record, message, columns or ())
            out.print(("\n" if n_printed else "") + "\n".join(lines))
        n_printed += 1
    if known and missing:
        raise fr.Error(no_column(min(missing), sorted(known), "any of these records"))
    return n_printed


def none_found(files: Sequence[str], where: str | None) -> str:
    """Return what to print if there are no records."""
    such = "" if where is None else "such "
    return f"no {such}records in {counted(len(files), 'file')}"


def _fields(record: PlacedRecord, message: _Message | None) -> dict[str, object]:
    """Return a record as JSON: lists of values, as the record has them."""
    fields: dict[str, object] = {"path": json_path(record.path)}
    fields["record"] = record.number
    if message is None:
        return {**fields, "bytes": record.data}
    fields["features"] = {
        name: [] if values is None else values
        for name, values in message.context.items()
    }
    if message.lists:
        fields["feature_lists"] = message.lists
    return fields


def _lines(
    record: PlacedRecord, message: _Message | None, columns: Sequence[str]
) -> Iterator[str]:
    size = counted(len(record.data), "byte")
    yield f"record {record.number:,} of {printable(record.path)}, {size}"
    if message is None:
        looks = _core.describe_foreign(record.data)
        yield f"  not a tf.train.Example{f'; it looks like {looks}' if looks else ''}"
        yield f"  {preview(record.data)}"
        return
    texts: dict[str | bytes, str] = dict.fromkeys(columns, "absent")
    texts |= {name: _values_text(values) for name, values in message.context.items()}
    texts |= {name: _steps_text(steps) for name, steps in message.lists.items()}
    yield from (f"  {line}" for line in aligned(texts) or ["no features"])


def _values_text(values: Any) -> str:
    if values is None:
        return "no values"
    return preview(values[0] if len(values) == 1 else values)


def _steps_text(steps: Sequence[Any]) -> str:
    shown = ", ".join(map(_values_text, steps[:_MAX_STEPS]))
    if len(steps) > _MAX_STEPS:
        return f"{counted(len(steps), 'step')}: {shown}, ..."
    return f"{counted(len(steps), 'step')}: {shown}" if steps else "0 steps"
