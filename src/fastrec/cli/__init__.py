"""The ``fastrec`` command: one module per subcommand.

typer and rich come with the extra ``cli`` and are imported by `app` and the modules it
names, never by this one or by ``import fastrec``.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = frozenset({"click", "rich", "typer"})


def main() -> None:
    """Run the ``fastrec`` command on the arguments of this process.

    Raises
    ------
    SystemExit
        Always. The status is 0, 1 for an error in files or records, 2 for a wrong
        command line or a missing extra, 130 after Ctrl-C.
    """
    try:
        from fastrec.cli.app import app  # here, for it needs the extra

        app()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(
            f"error: the fastrec command needs {error.name}, which is not installed: "
            'pip install "fastrec-io[cli]"',
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
