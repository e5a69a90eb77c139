"""Fetched: counts of requests to remote stores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fetched:
    """Counts of requests to remote stores.

    Attributes
    ----------
    n_bytes : int
        Bytes received.
    n_retries : int
        Requests that were repeated after a transient fault.
    waiting_ns : int
        The time that threads of the core waited for bytes, summed over the threads.
    """

    n_bytes: int = 0
    n_retries: int = 0
    waiting_ns: int = 0

    def __add__(self, other: Fetched) -> Fetched:
        """Return the sums."""
        return Fetched(
            self.n_bytes + other.n_bytes,
            self.n_retries + other.n_retries,
            self.waiting_ns + other.waiting_ns,
        )

    def __sub__(self, before: Fetched) -> Fetched:
        """Return the counts after `before`."""
        return Fetched(
            self.n_bytes - before.n_bytes,
            self.n_retries - before.n_retries,
            self.waiting_ns - before.waiting_ns,
        )
