"""Run campaigns: promises of docs/robustness.md, tried many times.

python -m campaigns list
python -m campaigns run flips resume      # as often as by default
python -m campaigns run flips --runs 1000 --seed 7 --no-record
"""

from __future__ import annotations

import argparse
import json

from campaigns.catalog import CAMPAIGNS, named
from campaigns.recorded import record, run, write_page


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m campaigns", description=(__doc__ or "").splitlines()[0]
    )
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("list", help="print all campaigns and their commands")
    commands.add_parser("page", help="write the table of the page again")
    runner = commands.add_parser("run", help="run campaigns, and record their results")
    runner.add_argument("names", nargs="+", metavar="NAME")
    runner.add_argument(
        "--runs", type=int, help="how often; each campaign has a default"
    )
    runner.add_argument(
        "--share", type=float, default=1, help="this share of the default number"
    )
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--no-record", dest="record", action="store_false")
    options = parser.parse_args()
    if options.command == "list":
        for campaign in CAMPAIGNS:
            print(f"{campaign.name} ({campaign.runs:,} {campaign.unit})")
            print(f"    {campaign.promise}\n    {campaign.command}")
    elif options.command == "page":
        write_page()
    else:
        for campaign in [named(name) for name in options.names]:
            runs = options.runs or max(1, round(options.share * campaign.runs))
            done = run(campaign, runs, options.seed)
            print(json.dumps(done), flush=True)
            if options.record:
                record(done)


if __name__ == "__main__":
    main()
