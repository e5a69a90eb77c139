"""The rules of the house, as tests.

Goal
    Data flows one way: a room includes or imports only rooms before it in the lists
    below, and no two Python modules import each other, however indirectly. Only the
    bindings know Python. Names and texts keep to the conventions. No room has more lines
    than its limit. Importing fastrec imports no framework.
Method
    The sources as text and as syntax trees; a fresh interpreter for the imports.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from children import run_python

PROJECT = Path(__file__).parents[1]
CPP = PROJECT / "src" / "cpp"
PYTHON = PROJECT / "src" / "fastrec"

ROOMS = [
    "base",
    "crc32c",
    "wire",
    "file",
    "record",
    "batch",
    "decode",
    "encode",
    "survey",
    "loader",
    "bindings",
]

# The modules of src/fastrec, and packages, which hold the modules in them.
PYTHON_ROOMS = [
    *(
        "printable",
        "display",
        "errors",
        "hints",
        "options",
        "caller_warnings",
        "tasks",
    ),
    *("arrays", "features", "on_error", "transforms"),
    *("storage", "example", "arrow", "kept"),
    *("sources", "writer", "tfds"),
    *("loader", "samplers"),
    "dataset",
    *("jax", "grain", "keras", "tf", "torch", "polars"),
    *("compat", "rewrite", "convert"),
    "ray",
    "__init__",
    "cli",
    "__main__",
]

# At most this many lines in a room: `git ls-files ROOM | xargs cat | wc -l`.
LINES = {
    "src/cpp/base": 804,
    "src/cpp/batch": 1898,
    "src/cpp/bindings": 4523,
    "src/cpp/crc32c": 1058,
    "src/cpp/decode": 3413,
    "src/cpp/encode": 834,
    "src/cpp/file": 2254,
    "src/cpp/loader": 2692,
    "src/cpp/record": 3958,
    "src/cpp/survey": 1162,
    "src/cpp/wire": 2206,
    "src/fastrec": 3625,
    "src/fastrec/arrays": 1401,
    "src/fastrec/arrow": 521,
    "src/fastrec/cli": 4004,
    "src/fastrec/compat": 585,
    "src/fastrec/convert": 1097,
    "src/fastrec/dataset": 2077,
    "src/fastrec/example": 1060,
    "src/fastrec/features": 3093,
    "src/fastrec/kept": 724,
    "src/fastrec/loader": 3853,
    "src/fastrec/ray": 994,
    "src/fastrec/rewrite": 717,
    "src/fastrec/sources": 1588,
    "src/fastrec/storage": 4146,
    "src/fastrec/tfds": 753,
    "src/fastrec/torch": 1482,
    "src/fastrec/transforms": 1499,
    "src/fastrec/writer": 1410,
}

BANNED_IN_TYPES = {
    "Manager",
    "Helper",
    "Util",
    "Utils",
    "Impl",
    "Base",
    "Data",
    "Info",
    "Context",
}
NAMED_BY_OTHERS = {"DataSource"}  # as Grain calls what it reads
NAMED_AS_PARAMETER = {"BatchInfo"}  # what a transform gets as `info`
BANNED_FUNCTIONS = re.compile(r"^_*(process|handle|do_\w+)$")

# Imported only when they are asked for, so they may import what they adapt.
ADAPTERS = {
    *("arrow", "grain", "jax", "keras", "polars", "ray", "tf", "torch"),
    *("compat", "convert", "cli", "__main__"),
}

CPP_FILES = sorted([*CPP.rglob("*.h"), *CPP.rglob("*.cpp")])
PYTHON_FILES = sorted(PYTHON.rglob("*.py"))
STUB_FILES = sorted(PYTHON.rglob("*.pyi"))
TEST_FILES = sorted(
    [
        *(PROJECT / "tests").rglob("*.py"),
        *(PROJECT / "tests").rglob("*.cpp"),
        *(PROJECT / "campaigns").glob("*.py"),
    ]
)

cpp = pytest.mark.parametrize("file", CPP_FILES, ids=lambda f: str(f.relative_to(CPP)))
python = pytest.mark.parametrize(
    "file", PYTHON_FILES, ids=lambda f: str(f.relative_to(PYTHON))
)
everything = pytest.mark.parametrize(
    "file",
    [*CPP_FILES, *PYTHON_FILES, *STUB_FILES, *TEST_FILES],
    ids=lambda f: str(f.relative_to(PROJECT)),
)


def room_of(file: Path) -> str:
    return file.relative_to(CPP).parts[0]


def test_the_sources_are_where_these_tests_look() -> None:
    assert {room_of(file) for file in CPP_FILES} == set(ROOMS)
    assert PYTHON / "__init__.py" in PYTHON_FILES


def lines_in(room: str) -> int:
    """Return the lines of a room, or of the modules that are in no package."""
    folder = PROJECT / room
    paths = folder.iterdir() if folder == PYTHON else folder.rglob("*")
    sources = {".cpp", ".h", ".html", ".py", ".pyi"}
    files = [path for path in paths if path.suffix in sources]
    return sum(path.read_bytes().count(b"\n") for path in files)


def test_each_room_has_a_limit_of_lines() -> None:
    folders = [file.relative_to(PROJECT).parts for file in [*CPP_FILES, *PYTHON_FILES]]
    assert LINES.keys() == {"/".join(parts[:-1][:3]) for parts in folders}


@pytest.mark.parametrize("room", LINES)
def test_a_room_keeps_its_limit_of_lines(room: str) -> None:
    n_lines = lines_in(room)
    assert n_lines <= LINES[room], (
        f"{room} has {n_lines} lines, {LINES[room]} are allowed: cut as many lines, or "
        "raise its number in LINES in this commit, and say why in the commit's message"
    )


@cpp
def test_a_room_includes_only_itself_and_rooms_above_it(file: Path) -> None:
    above = ROOMS[: ROOMS.index(room_of(file)) + 1]
    for included in re.findall(r'#\s*include\s+"([^"]+)"', file.read_text()):
        assert "/" in included, f"{included}: includes name the room"
        assert included.split("/")[0] in above, included
        assert (CPP / included).is_file(), included


@cpp
def test_only_the_bindings_know_python(file: Path) -> None:
    if room_of(file) != "bindings":
        assert not re.search(r"pybind11|Python\.h|numpy/", file.read_text())


def test_the_bindings_have_few_loops() -> None:
    """A loop is often a rule that belongs to the core: here they convert sequences."""
    text = "".join(
        re.sub(r"//.*", "", file.read_text())
        for file in CPP_FILES
        if room_of(file) == "bindings"
    )
    assert len(re.findall(r"\b(?:for|while) \(", text)) <= 71


@cpp
def test_headers_are_included_once(file: Path) -> None:
    if file.suffix == ".h":
        assert "#pragma once\n" in file.read_text()


def test_the_build_lists_its_sources_by_name() -> None:
    build = (PROJECT / "CMakeLists.txt").read_text()
    assert "GLOB" not in build
    for file in CPP_FILES:
        if file.suffix == ".cpp":
            assert str(file.relative_to(PROJECT).as_posix()) in build


@everything
def test_sources_are_ascii(file: Path) -> None:
    assert file.read_bytes().isascii()


@everything
def test_nothing_is_left_to_be_done(file: Path) -> None:
    assert not re.search(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b", file.read_text())


def words(name: str) -> set[str]:
    """The words of a name in camel case."""
    return set(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name))


@cpp
def test_names_in_the_core_say_something(file: Path) -> None:
    text = re.sub(r"//.*", "", file.read_text())
    for name in re.findall(r"\b(?:class|struct|enum)\s+(?:class\s+)?([A-Z]\w*)", text):
        assert not words(name) & BANNED_IN_TYPES, name
    for name in re.findall(
        r"\b([a-z]\w*)\s*\([^;{}]*\)\s*(?:const|noexcept|\s)*\{", text
    ):
        assert not BANNED_FUNCTIONS.match(name), name


@python
def test_names_in_python_say_something(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef) and node.name not in (
            NAMED_BY_OTHERS | NAMED_AS_PARAMETER
        ):
            assert not words(node.name) & BANNED_IN_TYPES, node.name
        elif isinstance(node, ast.FunctionDef):
            assert not BANNED_FUNCTIONS.match(node.name), node.name
    assert file.stem not in ("util", "utils", "common", "helpers", "misc")


@python
def test_an_interrupt_leaves_no_lock_held(file: Path) -> None:
    """`with lock:` would, in Python 3.14; see src/cpp/bindings/held_lock.cpp."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.With):
            held = [ast.unparse(item.context_expr) for item in node.items]
            assert not any(text.endswith("_lock") for text in held), held


@cpp
def test_the_core_neither_prints_nor_aborts(file: Path) -> None:
    text = re.sub(r"//.*", "", file.read_text())
    assert not re.search(
        r"\b(printf|fprintf|puts|abort|exit)\s*\(|std::(cout|cerr)", text
    )


def imported_at_the_top(file: Path) -> set[str]:
    """First words of what the module imports whenever it is imported."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package"
            found.add((node.module or "").split(".")[0])
    return found


@python
def test_outside_of_the_adapters_only_numpy_is_imported(file: Path) -> None:
    relative = file.relative_to(PYTHON)
    if relative.parts[0].removesuffix(".py") not in ADAPTERS:
        allowed = {*sys.stdlib_module_names, "numpy", "fastrec"}
        assert imported_at_the_top(file) <= allowed


@python
def test_adapters_are_not_imported_by_others(file: Path) -> None:
    relative = file.relative_to(PYTHON)
    if relative.parts[0].removesuffix(".py") in ADAPTERS:
        return
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")
            names = {alias.name for alias in node.names}
            if module == ["fastrec"]:
                assert not names & ADAPTERS
            elif module[0] == "fastrec":
                assert module[1] not in ADAPTERS


def modules() -> dict[str, Path]:
    found = {}
    for file in PYTHON_FILES:
        parts = file.relative_to(PYTHON.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()


def imported(module: str) -> set[str]:
    """Modules of fastrec that a module imports anywhere: functions and types, too."""
    names = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            of_module = {f"{node.module}.{alias.name}" for alias in node.names}
            are_modules = of_module & {*MODULES, "fastrec._core"}
            names |= are_modules
            if len(are_modules) < len(of_module) and node.module is not None:
                names.add(node.module)
    return names & MODULES.keys() - {module}


def python_room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def test_the_python_rooms_are_listed() -> None:
    assert {python_room(module) for module in MODULES} == set(PYTHON_ROOMS)


@pytest.mark.parametrize("module", MODULES)
def test_a_python_room_imports_only_itself_and_rooms_before_it(module: str) -> None:
    number = PYTHON_ROOMS.index(python_room(module))
    for name in imported(module):
        assert PYTHON_ROOMS.index(python_room(name)) <= number, name


def test_no_modules_import_each_other() -> None:
    left = {module: imported(module) for module in MODULES}
    for module, names in left.items():  # a room's __init__ only passes names on
        names -= {name for name in names if module.startswith(f"{name}.")}
    while free := {module for module, names in left.items() if not names & left.keys()}:
        left = {module: names for module, names in left.items() if module not in free}
    assert not left, "these are in a circle, or import one"


def test_importing_fastrec_imports_no_framework() -> None:
    code = "import sys, fastrec; print(*sys.modules)"
    done = run_python(code)
    modules = {name.split(".")[0] for name in done.stdout.split()}
    heavy = {
        "typer",
        "rich",
        "click",
        "torch",
        "tensorflow",
        "jax",
        "keras",
        "grain",
        "polars",
        "ray",
        "duckdb",
        "pandas",
        "google",
        "pyarrow",
        "PIL",
    }
    assert "fastrec" in modules
    assert not modules & heavy


def test_importing_fastrec_is_light() -> None:
    """Modules that are slow to import, or that a loop does not need, wait for their use."""
    code = (
        "import numpy, sys; before = set(sys.modules); import fastrec; "
        "print(*(sys.modules.keys() - before))"
    )
    done = run_python(code)
    slow = {"asyncio", "concurrent", "hashlib", "pathlib", "secrets", "urllib"}
    unused = {"fastrec.writer", "fastrec.rewrite", "fastrec.example", "fastrec.convert"}
    assert not set(done.stdout.split()) & (slow | unused)


def test_every_public_name_exists() -> None:
    code = "import fastrec as fr; [getattr(fr, name) for name in fr.__all__]"
    run_python(code)


def test_an_install_does_not_build_inside_the_checkout() -> None:
    """Two installs at a time would write to the same build folder."""
    assert "build-dir" not in (PROJECT / "pyproject.toml").read_text()
