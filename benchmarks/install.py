"""Create an environment for each peer, with the versions pinned in `peers`.

A peer that cannot be installed is reported and skipped, and run.py reports it as
missing. Existing environments with the same pins are kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

from peers import PEERS, Peer
from workloads import default_data

__all__ = ["default_environments", "interpreters"]


def default_environments() -> Path:
    """Return the default directory of the environments."""
    return default_data().with_name("fastrec-bench-peers")


def interpreters(folder: Path) -> dict[str, str]:
    """Return the Python interpreter of each complete environment, by peer."""
    return {
        name: str(folder / name / "bin" / "python")
        for name in PEERS
        if (folder / name / "requirements.txt").exists()
    }


def install(peer: Peer, folder: Path) -> None:
    """Create one environment; raise a CalledProcessError if pip fails."""
    finished = folder / "requirements.txt"
    pins = "".join(f"{line}\n" for line in (*peer.requirements, *peer.constraints))
    if finished.exists() and finished.read_text() == pins:
        return
    venv.create(folder, clear=True, with_pip=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in peer.constraints))
    subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "install", "-q", *peer.requirements],
        env={**os.environ, "PIP_CONSTRAINT": str(constraints)},
        check=True,
    )
    finished.write_text(pins)


def main() -> int:
    """Install the given peers; return 1 if one fails."""
    names = [name for name, peer in PEERS.items() if peer.requirements]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=names, default=names)
    parser.add_argument("--environments", type=Path, default=default_environments())
    args = parser.parse_args()
    failed = []
    for name in args.peers:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            install(PEERS[name], args.environments / name)
        except subprocess.CalledProcessError as error:
            print(f"{name}: pip ended with {error.returncode}", file=sys.stderr)
            failed.append(name)
    print(f"{len(args.peers) - len(failed)} installed; failed: {failed or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
