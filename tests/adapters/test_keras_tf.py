"""Keras on TensorFlow: all that holds with the other backends.

Goal
    What test_keras.py says of PyTorch and JAX holds with the backend TensorFlow.
Method
    The same tests, as far as Keras computes in them, in a process of that backend.
    Needs TensorFlow: run with `-m oracle`.
"""

from __future__ import annotations

import pytest

from keras_backends import run_tests_with_backend

pytestmark = pytest.mark.oracle

pytest.importorskip("tensorflow", reason="TensorFlow")
pytest.importorskip("keras", reason="Keras")


def test_all_that_holds_with_other_backends_holds_with_tensorflow() -> None:
    run_tests_with_backend("tensorflow", of_parent="tensorflow")
