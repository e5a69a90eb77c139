"""The check of our English finds what it bans, and nothing in good sentences.

Goal
    A change with a banned phrase fails the lint session; a plain sentence never does.
Method
    The functions of .ci/plain_english.py on sentences.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "plain_english.py"
if not SCRIPT.is_file():  # source distributions leave it out
    pytest.skip("no .ci here", allow_module_level=True)
_spec = importlib.util.spec_from_file_location("plain_english", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
plain_english = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plain_english)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Nobody reads it.", "Nobody"),
        ("# The record is\n# passed over.", "passed over"),
        ("// A span of its\n  // own.", "of its own"),
        ('"the value is "\n    f"no array, got {x}"', "is no array"),
        ("ranks that are there", "that are there"),
        ("constexpr int kMostLevels = 4;", "kMostLevels"),
    ],
)
def test_a_banned_phrase_is_found(text: str, phrase: str) -> None:
    assert [found for _, found, _ in plain_english.hits(text)] == [phrase]


@pytest.mark.parametrize(
    "text",
    [
        "if value is None:",
        "There is no header, and there are no more bytes.",
        "The file is no longer mapped.",
        "Are there files? There are 3.",
        "One pass over the bytes, and no pass over the index.",
        "Instead of `as they lie`, write: unchanged.",
        "It is not one. None of them is read, because there is none.",
        "The transforms of its own sources.",
    ],
)
def test_a_plain_sentence_passes(text: str) -> None:
    assert list(plain_english.hits(text)) == []


def test_a_hit_names_its_line() -> None:
    ((line, _, advice),) = plain_english.hits("one\ntwo\nthe bytes at hand")
    assert (line, advice) == (3, "available, current")
