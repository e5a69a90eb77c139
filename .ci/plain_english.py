"""Find phrases that are not plain technical English, in files and commit messages.

usage: python .ci/plain_english.py [FILE ...]    (default: the files of PATTERNS)

Prints ``file:line: 'phrase': write ...`` for each hit; the exit status is 1 if there are
any. Text in backticks is not checked, so that pages can name what they advise against.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATTERNS = [
    *(
        "*.md",
        "docs/**/*.md",
        "campaigns/*.md",
        "docs/*.py",
        ".github/**/*.md",
        ".github/**/*.yml",
        "noxfile.py",
    ),
    *("pyproject.toml", "benchmarks/**/*.md", "benchmarks/**/*.py", "examples/*.py"),
    *("src/fastrec/**/*.py", "src/fastrec/**/*.pyi"),
    *("src/cpp/**/*.h", "src/cpp/**/*.cpp"),
]

# A phrase, as a regular expression, and what to write instead. Keep only phrases that
# are wrong wherever they occur; everything else is for the reader of the change.
PHRASES = {
    r"(nobody|somebody|whoever)": "the name of the component or person",
    r"anew": "again",
    r"at hand": "available, current",
    r"in vain": "without success",
    r"told of": "reported",
    r"(is|are|was|were) told": "is reported, receives",
    r"makes? no sense": "is invalid",
    r"(passes|passed|passing|to pass|may pass|can pass) over": "skip",
    r"as (they|it) (lies?|lay)": "in place, unchanged",
    r"of (its|their) own(?= ?[.,;:)|]| (and|for|in|on|that|to|which|with)\b|$)": (
        "separate, its own <noun>"
    ),
    r"(its|their) like": "similar <nouns>",
    r"beside": "next to, compared with, in addition to",
    r"(has|have|had|having) to do with": "concerns, depends on",
    r"(?<!there )(?<!there's )(is|are|was|were) no (?!longer|more|less|fewer)\w+": (
        "is not a <noun>, got no <noun>"
    ),
    r"(?<!there )(is|are|was|were) (?-i:none)": "does not exist, is not one",
    r"(that|which|what|it|they|who) (is|are) (not |already |still )?there": "exists",
    r"so many": "this many, the same number of",
    r"sooner than": "before",
    r"(go|goes|going|went|gone) on(?! (the|a|an|disk|huge|top|one))": (
        "continue, resume"
    ),
    r"(come|comes|came|coming) (out|to pass)": "results, happens",
    r"lets? go of|letting go of": "release",
    r"\w+ it be": "so that it is",
    r"(hitherto|whence|lest|therein|thereof|wherein|whereof|thither)": "a modern word",
    r"k(Most|Fewest|Least)[A-Z]\w*": "kMax..., kMin...",
}
# A commit subject names the part first: "loader: reopen after an interrupt".
SUBJECT_VERBS = r"(Let|Have|Say|Ask|Tell|Give|Make)\b"

RULES = [
    (re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), instead)
    for phrase, instead in PHRASES.items()
]
# Words and what ends a phrase. Quotes, comment signs and line ends are between words.
TOKEN = re.compile(r"`[^`\n]*`|\bf(?=\")|[\w'-]+|[.,;:!?()|]")


def hits(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, the phrase and the advice of each hit."""
    words, starts = [], []
    for token in TOKEN.finditer(text):
        if token[0] != "f":
            words.append("`" if token[0][0] == "`" else token[0])
            starts.append(token.start())
    prose = " ".join(words)
    for pattern, instead in RULES:
        for found in pattern.finditer(prose):
            start = starts[prose.count(" ", 0, found.start())]
            yield text.count("\n", 0, start) + 1, found[0], instead


def files(arguments: list[str]) -> list[Path]:
    """Return the files to check."""
    if arguments:
        return [Path(argument) for argument in arguments]
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def commits() -> list[tuple[str, str]]:
    """Return hash and message of the commits that main lacks, or of the last commit."""

    def log(*options: str) -> str:
        command = ["git", "log", "--no-merges", "--format=%h%x00%B%x01", *options]
        done = subprocess.run(
            command, capture_output=True, check=False, cwd=ROOT, text=True
        )
        return done.stdout

    logged = log("origin/main..HEAD") or log("main..HEAD") or log("-1")
    entries = [entry.strip().partition("\0") for entry in logged.split("\x01")]
    return [(commit, message) for commit, _, message in entries if commit]


def main() -> int:
    """Print all hits and return the exit status."""
    found = []
    for path in files(sys.argv[1:]):
        name = path.resolve().relative_to(ROOT)
        for line, phrase, instead in sorted(hits(path.read_text("utf-8"))):
            found.append(f"{name}:{line}: {phrase!r}: write {instead}")
    for commit, message in commits():
        if re.match(SUBJECT_VERBS, message):
            subject = message.splitlines()[0]
            found.append(
                f"commit {commit}: {subject!r}: begin with the part, 'loader:'"
            )
        for line, phrase, instead in sorted(hits(message)):
            found.append(f"commit {commit}:{line}: {phrase!r}: write {instead}")
    print("\n".join(found) or "plain English: nothing to rewrite")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
