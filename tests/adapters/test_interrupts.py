"""Signals: what remains of an adapter's call that a signal handler interrupts.

Goal
    No batch is lost or repeated, and no thread or descriptor is left, wherever the
    handler of a signal raises in the code of an adapter.
Method
    A share of the campaign of interrupts.py over each adapter.
"""

from __future__ import annotations

import json
import sys

import pytest

from campaigns.interrupted_readers import ADAPTERS
from children import SEED, n_runs, run_campaign

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc as Linux has it"),
]


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("mode", ["single", "storm"])
def test_an_interrupted_adapter_loses_nothing_and_leaves_nothing(
    mode: str, adapter: str
) -> None:
    n_signals = n_runs(300)
    printed = run_campaign(
        "interrupts", mode, adapter, "--signals", n_signals, "--seed", SEED
    )
    report = json.loads(printed.splitlines()[-1])
    assert report[f"in_{adapter}"] >= n_signals
    assert report["slowest_ms"] < 10_000  # 200 on a machine that does nothing else
