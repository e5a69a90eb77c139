"""The ``fastrec`` command: one module per subcommand.

typer and rich belong to the extra ``cli``. Only `app` and the modules it imports need
them, not this module and not ``import fastrec``.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = frozenset({"click", "jinja2", "rich", "typer"})


def main() -> None:
    """Run the ``fastrec`` command on the arguments of this process.

    Raises
    ------
    SystemExit
        Always. The status is 0 if nothing wrong was found, 1 if the data has a problem
        or the answer is negative, 2 if the command could not run, and 130 after Ctrl-C.
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
