"""CRC-32C: every kernel of this machine gives the one right answer.

Goal
    All kernels agree with published vectors and with another implementation, for every
    length and alignment; a forced instruction set is used or refused, never replaced.
Method
    The vectors of RFC 3720; the `crc32c` package as the other implementation; processes
    that are started with FASTREC_ISA.
"""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
from pathlib import Path

import crc32c as other
import pytest

import oracle
from fastrec import _core

KERNELS = _core.crc32c_kernels()

# RFC 3720, appendix B.4; and the check value of the CRC catalogues.
VECTORS = {
    "zeros": (bytes(32), 0x8A9136AA),
    "ones": (b"\xff" * 32, 0x62A8AB43),
    "ascending": (bytes(range(32)), 0x46DD794E),
    "descending": (bytes(range(31, -1, -1)), 0x113FDB5C),
    "iSCSI read": (
        bytes.fromhex(
            "01c00000 00000000 00000000 00000000 14000000 00000400"
            "00000014 00000018 28000000 00000000 02000000 00000000"
        ),
        0xD9963A56,
    ),
    "empty": (b"", 0),
    "check": (b"123456789", 0xE3069283),
}


def run_with_isa(isa: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FASTREC_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_is_always_a_portable_kernel_and_it_is_the_last() -> None:
    assert len(set(KERNELS)) == len(KERNELS)
    assert KERNELS[-1] == "portable"


def test_an_x86_with_sse42_has_more_than_the_portable_kernel() -> None:
    cpu = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpu.exists():
        pytest.skip("not an x86-64 Linux")
    flags = set(cpu.read_text().split())
    assert (len(KERNELS) > 1) == ({"sse4_2", "pclmulqdq"} <= flags)


@pytest.mark.parametrize("kernel", [None, *KERNELS])
@pytest.mark.parametrize("name", VECTORS)
def test_published_vectors(kernel: str | None, name: str) -> None:
    data, crc = VECTORS[name]
    assert _core.crc32c(data, kernel=kernel) == crc
    assert oracle.crc32c(data) == crc


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_length_up_to_4_kib(kernel: str) -> None:
    data = memoryview(random.Random(0).randbytes(4096 + 64))
    for length in range(4097):
        begin = length * 7 % 64
        view = data[begin : begin + length]
        assert _core.crc32c(view, kernel=kernel) == other.crc32c(view), (begin, length)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_alignment_of_short_and_of_block_sized_data(kernel: str) -> None:
    data = memoryview(random.Random(1).randbytes(2 * 4096))
    lengths = [
        *range(130),
        *(size + d for size in (256, 1024, 3072) for d in (-1, 0, 1)),
    ]
    for length in lengths:
        for begin in range(64):
            view = data[begin : begin + length]
            assert _core.crc32c(view, kernel=kernel) == other.crc32c(view), (
                begin,
                length,
            )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("length", [110_000, 1_000_003, 4 << 20])
def test_long_data(kernel: str, length: int) -> None:
    data = random.Random(2).randbytes(length)
    assert _core.crc32c(data, kernel=kernel) == other.crc32c(data)


def test_the_instruction_sets_are_those_that_the_documentation_names() -> None:
    named = {"portable", "sse42", "avx2", "vpclmul", "avx512", "arm64"}
    assert set(_core.isas()) <= named
    assert set(KERNELS) <= set(_core.isas())
    assert _core.isas()[-1] == "portable"
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    for name in named:
        assert f"`{name}`" in page


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        _core.crc32c(b"data", kernel="nonsense")


def test_the_portable_instruction_set_can_be_forced() -> None:
    code = "import fastrec._core as c; print(hex(c.crc32c(b'123456789')))"
    done = run_with_isa("portable", code)
    assert (done.returncode, done.stdout.strip()) == (0, "0xe3069283"), done.stderr


@pytest.mark.parametrize(
    "isa",
    ["avx9000", "PORTABLE", "arm64" if platform.machine() == "x86_64" else "sse42"],
)
def test_an_impossible_instruction_set_fails_at_import(isa: str) -> None:
    done = run_with_isa(isa, "import fastrec")
    assert done.returncode == 1, "not an exception, or none at all"
    message = done.stderr[done.stderr.index("FASTREC_ISA") :]
    assert isa in message
    assert "portable" in message, "it lists what is possible"
