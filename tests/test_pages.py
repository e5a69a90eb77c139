"""README.md and docs/: the code runs, and the links lead somewhere.

Goal
    A reader who copies a block has code that works on the files that it names.
Method
    The blocks of a section run in one process (support/pages.py), in the order of the
    page. Blocks that import a framework run in the tests with its mark.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pages import PAGES, ROOT, blocks_of

SECONDS = 300
MARKS = {
    "": [],
    "frameworks": [pytest.mark.frameworks],
    "oracle": [pytest.mark.oracle],
}
FILE_OF_REPOSITORY = re.compile(
    r"https://github\.com/fastrec/fastrec/(?:blob|tree|raw)/main/(.+)"
)
# Pages whose links are checked: those with code, and others that no site shows.
LINKED = [
    *PAGES,
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("benchmarks/README.md", "campaigns/README.md"),
]
# The target of a link or picture, in Markdown or HTML.
LINK = re.compile(r'(?:\]\(|(?:href|src|srcset)=")([^)"\s]+)')
SECTIONS = sorted(
    {
        (page, block.section, block.mark)
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "python" or block.commands
    }
)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    ("page", "section", "mark"),
    [
        pytest.param(
            *(page, section, mark),
            marks=MARKS[mark],
            id=f"{Path(page).stem}-{section}",
        )
        for page, section, mark in SECTIONS
    ],
)
def test_the_code_of_a_section_runs(
    page: str, section: str, mark: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/support/pages.py", page, section, mark],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=os.environ
        | {
            "KERAS_BACKEND": "tensorflow" if mark == "oracle" else "torch",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = json.loads((tmp_path / "skipped.json").read_text())
    marked = [
        block
        for block in blocks_of(page)
        if block.section == section and block.mark == mark
    ]
    if all(str(block.line) in skipped for block in marked):
        pytest.skip(", ".join(sorted(set(skipped.values()))))


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if path.startswith("https:"):
            in_repository = FILE_OF_REPOSITORY.fullmatch(path)
            if not in_repository:
                continue
            assert page != "README.md", f"{target}: links of the README are relative"
            file = ROOT / in_repository[1]
        else:
            file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text("utf-8")), target


@pytest.mark.parametrize("page", PAGES)
def test_extras_that_pages_name_exist(page: str) -> None:
    extras = re.findall(
        r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    for named in re.findall(
        r"fastrec-io\[([\w,]+)\]", (ROOT / page).read_text("utf-8")
    ):
        assert set(named.split(",")) <= set(extras), named
