"""Damaged files of every kind, read in every way.

Goal
    Whatever is damaged, and however the files are read, the records come that can be
    read, and no others; errors and reports name the place of the rest.
Method
    A few hundred cases of the campaign damaged_files.py, which draws data sets, damage
    and ways of reading, and compares with a reader in plain Python.
"""

from __future__ import annotations

import pytest

from campaigns.damaged_files import check_cases

CASES = 300
PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_every_reading_delivers_what_plain_python_finds(part: int) -> None:
    counts = check_cases(seed=0, numbers=range(part, CASES, PARTS))
    assert counts["data sets"] == CASES / PARTS
    assert counts["compressed"] > 0
