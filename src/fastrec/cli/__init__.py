"""The ``fastrec`` command and its subcommands.

The extra ``cli`` installs typer and rich. `app` and the modules that it imports require
them; this module and ``import fastrec`` do not.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = frozenset({"click", "jinja2", "rich", "typer"})


def main() -> None:
    """Run the ``fastrec`` command with the arguments in ``sys.argv``.

    Raises
    ------
    SystemExit
        Always. The status is 0 on success, 1 if the command found a problem in the
        data, 2 if the command could not run, and 130 after Ctrl-C.
    """
    try:
        from fastrec.cli.app import app  # needs the extra

        app()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(
            f"error: the fastrec command requires {error.name}, which is not installed: "
            'pip install "fastrec-io[cli]"',
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
