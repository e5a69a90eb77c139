"""Campaigns: programs that try one promise many times; see README.md.

A campaign imports what it shares with the tests from ``tests/support``; nothing there
imports a campaign. A test runs a campaign briefly, or imports its parts.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))
