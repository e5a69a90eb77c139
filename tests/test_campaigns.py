"""The campaigns, their recorded results, and the page that shows them.

Goal
    Every figure of the table in docs/robustness.md was recorded by a campaign that
    succeeded. Every campaign, and every page, names files that exist.
Method
    The table is made again from docs/campaigns.json. Campaigns of one line succeed, fail,
    and report figures.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import campaigns
from campaigns import recorded, slices
from campaigns.catalog import CAMPAIGNS, Campaign, named, of_tests
from fastrec import _core

PAGES = [
    *("CONTRIBUTING.md", "SECURITY.md", "README.md", "campaigns/README.md"),
    *(f"docs/{path.name}" for path in sorted((campaigns.ROOT / "docs").glob("*.md"))),
]


def test_the_page_shows_the_recorded_results() -> None:
    page = recorded.PAGE.read_text(encoding="utf-8")
    assert recorded.table(recorded.read(recorded.RESULTS)) in page


def test_recorded_commits_can_be_checked_out() -> None:
    if not (campaigns.ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    if recorded.said("git", "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this checkout has no history")
    history = recorded.said("git", "log", "--format=%H").split()
    for entry in recorded.read(recorded.RESULTS):
        commit = entry["commit"].removeprefix("before ")
        assert any(full.startswith(commit) for full in history), entry


def paths_in(text: str) -> list[str]:
    """Return the files of this checkout that a text, or a command in it, names."""
    modules = re.findall(r"-m (campaigns(?:\.\w+)?)", text)
    files = [f"{module.replace('.', '/')}.py" for module in modules if "." in module]
    return files + re.findall(r"\b(?:benchmarks|campaigns|tests)/[\w/]+\.\w+", text)


def test_each_campaign_has_its_own_name_and_files_that_exist() -> None:
    names = [campaign.name for campaign in CAMPAIGNS]
    assert len(set(names)) == len(names)
    for campaign in CAMPAIGNS:
        files = paths_in(campaign.command)
        assert files or campaign.name == "suite", campaign
        for file in files:
            assert (campaigns.ROOT / file).is_file(), campaign


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_exist(page: str) -> None:
    for file in paths_in((campaigns.ROOT / page).read_text(encoding="utf-8")):
        assert (campaigns.ROOT / file).is_file(), file


def test_nothing_in_tests_support_imports_a_campaign() -> None:
    for path in (campaigns.ROOT / "tests" / "support").glob("*.py"):
        assert not re.search(r"(from|import) campaigns", path.read_text("utf-8")), path


def test_the_readme_lists_all_campaigns_and_programs() -> None:
    folder = campaigns.ROOT / "campaigns"
    text = (folder / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert listed == [c.name for c in CAMPAIGNS if not c.name.startswith("fuzz-")]
    programs = {path.stem for path in folder.glob("[!_]*.py")}
    assert programs == {*re.findall(r"`(\w+)\.py`", text)}


def test_each_fuzz_target_has_a_campaign_and_a_corpus() -> None:
    sources = campaigns.ROOT / "tests" / "cpp"
    targets = {path.stem for path in sources.glob("*_fuzz.cpp")} - {"canary_fuzz"}
    fuzzed = {c.name for c in CAMPAIGNS if c.name.startswith("fuzz-")}
    assert fuzzed == {f"fuzz-{target.removesuffix('_fuzz')}" for target in targets}
    corpora = {path.stem: path for path in (sources / "corpora").glob("*.zip")}
    assert set(corpora) == targets
    assert sum(path.stat().st_size for path in corpora.values()) < 2**20


def test_a_campaign_gets_runs_and_seed_and_reports_figures() -> None:
    code = (
        "import json, sys; runs, seed = map(int, sys.argv[1:]); "
        'print("text"); print(json.dumps(dict(runs=2 * runs, bytes=seed)))'
    )
    campaign = Campaign("flips", "", f"{{python}} -c '{code}' {{runs}} {{seed}}", 1, "")
    done = recorded.run(campaign, 21, 7)
    assert (done["runs"], done["seed"], done["bytes"]) == (42, 7, 7)


def test_a_campaign_of_tests_sets_their_environment_and_counts_them() -> None:
    campaign = of_tests("flips", "", "-k nothing", 1, "")
    variables = dict(re.findall(r"(FASTREC_TEST_\w+)=(\S+)", campaign.command))
    assert variables == {"FASTREC_TEST_RUNS": "{runs}", "FASTREC_TEST_SEED": "{seed}"}
    said = "..\\n12 passed, 3 skipped in 0.1s"
    campaign = Campaign("flips", "", f"{{python}} -c 'print(\"{said}\")'", 1, "")
    done = recorded.run(campaign, 21, 7)
    assert (done["runs"], done["tests"]) == (21, 12)


def test_a_campaign_that_fails_is_not_recorded() -> None:
    campaign = Campaign("flips", "", "{python} -c 'raise SystemExit(3)'", 1, "")
    with pytest.raises(SystemExit, match="flips failed with status 3"):
        recorded.run(campaign, 1, 0)


def test_a_result_replaces_that_of_the_same_runtime(tmp_path: Path) -> None:
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    results.write_text("[]")
    page.write_text(f"before\n{recorded.BEGIN}\n{recorded.END}\nafter\n")
    first = recorded.result("flips", 1000, 1, 2.5, "abc") | {"runtime": "Python 3.11.1"}
    again = {**first, "runs": 2000, "runtime": "Python 3.11.9", "bytes_read": 12345}
    other = {**first, "runtime": "Python 3.13.0"}
    for entry in (first, other, again):
        recorded.record(entry, results, page)
    assert json.loads(results.read_text()) == [again, other]
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    promise = named("flips").promise
    figures = "2,000 flips; 12,345 bytes read"
    assert f"\n| `flips` | {promise} | {figures} | 1 |" in text
    assert "\n|  |  | 1,000 flips | 1 |" in text  # of the same promise


def test_slices_add_up_and_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "RESULTS", tmp_path)
    run: list[tuple[int, str]] = []

    def run_slice(number: int, isa: str) -> dict[str, int]:
        run.append((number, isa))
        return {"runs": 10, "odd": number}

    first = slices.add_slices("some", ["src/cpp/wire"], 15, run_slice)
    assert (first["runs"], first["odd"]) == (20, 1)
    again = slices.add_slices("some", ["src/cpp/wire"], 35, run_slice)
    assert (again["runs"], again["odd"]) == (40, 6)
    isas = _core.isas()
    assert run == [(i, isas[i % len(isas)]) for i in range(4)]
    # Other sources are another campaign.
    slices.add_slices("some", ["src/cpp/base"], 1, run_slice)
    assert run[4:] == [(0, isas[0])]


def test_a_slice_that_fails_ends_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "RESULTS", tmp_path)
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(SystemExit, match="FASTREC_TEST_SEED=5 FASTREC_ISA=") as caught:
        slices.add_slices(
            "some",
            [],
            1,
            lambda _, isa: {
                "runs": len(slices.run_with(isa, command, FASTREC_TEST_SEED=5))
            },
        )
    assert "status 3" in str(caught.value)
    assert not list(tmp_path.iterdir())
