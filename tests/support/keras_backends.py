"""Run the tests that compute with Keras in a process with another backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from children import SECONDS_TO_HANG

# Tests that raise before Keras computes do not depend on the backend.
_COMPUTING = "epoch or weigh or predictions or outputs or shuffles"


def run_tests_with_backend(backend: str, *, of_parent: str) -> None:
    """Run test_keras.py; `of_parent` is the backend of the calling process."""
    tests = Path(__file__).parents[1] / "adapters" / "test_keras.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    backends = {"KERAS_BACKEND": backend, "KERAS_BACKEND_OF_PARENT": of_parent}
    done = subprocess.run(
        [*command, "-k", _COMPUTING, tests],
        env=os.environ | backends,
        capture_output=True,
        text=True,
        timeout=10 * SECONDS_TO_HANG,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
