"""``python -m fastrec``: the `fastrec` command."""

from __future__ import annotations

from fastrec.cli import main

main()
