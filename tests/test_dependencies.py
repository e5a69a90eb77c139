"""What CI installs and runs is pinned.

Goal
    Every action of a workflow is a commit. Every package that a session of CI installs
    has one version for each Python version, and what builds a release has hashes.
Method
    The names in pyproject.toml are looked up in the files that `nox -s lock` writes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on

ROOT = Path(__file__).parents[1]
LOCKED = ROOT / ".ci"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

pytestmark = pytest.mark.skipif(
    not LOCKED.exists(), reason="an sdist has neither workflows nor pinned versions"
)


def project() -> dict[str, Any]:
    """Return what pyproject.toml has."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return found


def pinned(name: str) -> dict[str, list[Requirement]]:
    """Return the requirements of a file by the names of their packages."""
    text = (LOCKED / name).read_text("utf-8").replace("\\\n", " ")
    found: dict[str, list[Requirement]] = {}
    for line in text.splitlines():
        requirement = Requirement(line.partition(" --hash")[0])
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def required() -> list[Requirement]:
    """Return what the project, its extras, its groups and its build require."""
    found = project()
    tables = [found["project"]["optional-dependencies"], found["dependency-groups"]]
    lines = [*found["build-system"]["requires"], *found["project"]["dependencies"]]
    lines += [line for table in tables for group in table.values() for line in group]
    requirements = [Requirement(line) for line in lines if isinstance(line, str)]
    return [each for each in requirements if each.name != "fastrec-io"]


def test_every_requirement_has_one_version_that_it_allows() -> None:
    versions = pinned("constraints.txt")
    unused = {"pre-commit"}  # CI does not run it
    assert len(required()) > 40
    for requirement in required():
        if requirement.name in unused:
            continue
        for found in versions[canonicalize_name(requirement.name)]:
            (specifier,) = found.specifier
            assert specifier.operator == "=="
            assert requirement.specifier.contains(specifier.version), found


def test_what_builds_a_release_has_hashes() -> None:
    text = (LOCKED / "build.txt").read_text("utf-8").replace("\\\n", " ")
    assert all(" --hash=sha256:" in line for line in text.splitlines())
    for line in project()["build-system"]["requires"]:
        assert canonicalize_name(Requirement(line).name) in pinned("build.txt")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_every_action_is_a_commit(workflow: Path) -> None:
    used = re.findall(r"uses: *(.*)", workflow.read_text("utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", action), action
