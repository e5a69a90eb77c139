"""Limits: what hostile or broken files may cost.

Whatever a file says, memory is taken for bytes that were read, or up to a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastrec.options import byte_count, positive_int

__all__ = ["Limits", "checked_limits"]

_RECORD_BYTES_MAX = 2**31 - 1


@dataclass(frozen=True, init=False)
class Limits:
    """What records may cost; more is a `LimitError`. The values are good for most data.

    What is not here is bounded by the bytes of the record: a value takes one of them at
    least, and at most 8 bytes in a batch.

    Parameters
    ----------
    record_bytes : int or str, default 2**31 - 1
        The bytes of a record, as a number or as text such as ``"64MB"``. protobuf reads
        none that is larger than the default.
    padded_bytes : int or str, default "4GiB"
        The memory of a padded column (`FixedLenSequence`) in one batch, in which one long
        record makes all others as long.
    features : int, default 100_000
        The features of the records whose schema is inferred (and as many feature lists).
        Where features are given, others cost nothing.
    expansion : int, default 500
        How many times its size a compressed file may become in `cache_dir`; any may
        become 1 GiB.

    Raises
    ------
    TypeError, ValueError
        If one is not positive, or `record_bytes` above its default.

    Examples
    --------
    >>> import fastrec as fr
    >>> limits = fr.Limits(record_bytes="64MB")
    >>> ds = fr.open("uploads/*.tfrecord", limits=limits)  # doctest: +SKIP
    """

    record_bytes: int
    padded_bytes: int
    features: int
    expansion: int

    def __init__(
        self,
        *,
        record_bytes: int | str = _RECORD_BYTES_MAX,
        padded_bytes: int | str = "4GiB",
        features: int = 100_000,
        expansion: int = 500,
    ) -> None:
        checked = {
            "record_bytes": byte_count("record_bytes", record_bytes),
            "padded_bytes": byte_count("padded_bytes", padded_bytes),
            "features": positive_int("features", features),
            "expansion": positive_int("expansion", expansion),
        }
        if checked["record_bytes"] > _RECORD_BYTES_MAX:
            msg = f"record_bytes must be at most {_RECORD_BYTES_MAX}, as for protobuf"
            raise ValueError(msg)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def checked_limits(value: object) -> Limits:
    """Return `value`, or the default limits for None.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if value is None:
        return Limits()
    if isinstance(value, Limits):
        return value
    msg = f"limits must be a fastrec.Limits, not {value!r}"
    raise TypeError(msg)
