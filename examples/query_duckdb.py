"""TFRecord files as a table: SQL with DuckDB, and the same lazily with polars.

usage: python examples/query_duckdb.py [FILES ...]

FILES are TFRecord files of tf.train.Example with a feature "label", or patterns of them;
examples/fashion_mnist.py makes those that are read by default. Needs duckdb and polars.
"""

from __future__ import annotations

import argparse

import duckdb
import polars as pl

import fastrec as fr

FILES = "fashion-mnist/train-*.tfrecord"


def main() -> None:
    """Count the records of each label, twice."""
    arguments = argparse.ArgumentParser(description="SQL over TFRecord files")
    arguments.add_argument(
        "files", nargs="*", default=[FILES], help=f"default: {FILES}"
    )
    given = arguments.parse_args()

    # DuckDB finds the variable that its query names. It asks for all columns of a table,
    # so say which are needed: nothing else is decoded.
    labels = fr.open(given.files).select_columns(["label"])
    query = "SELECT label, count(*) AS n FROM labels GROUP BY label ORDER BY label"
    for label, n_records in duckdb.sql(query).fetchall():
        print(f"label {label}: {n_records:,} records")
    print(f"{len(labels):,} records in {len(labels.files)} files")

    # polars tells by itself which columns and rows a query needs.
    counts = fr.polars.scan(given.files).group_by("label").agg(pl.len())
    print(counts.sort("label").collect())


if __name__ == "__main__":
    main()
