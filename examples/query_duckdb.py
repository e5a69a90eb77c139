"""Query TFRecord files as a table with DuckDB and polars.

usage: python examples/query_duckdb.py [FILES ...]

FILES are TFRecord files of tf.train.Example with a feature "label", or patterns of them;
examples/fashion_mnist.py writes the default files. Needs duckdb and polars.
"""

from __future__ import annotations

import argparse

import duckdb
import polars as pl

import fastrec as fr

FILES = "fashion-mnist/train-*.tfrecord"


def main() -> None:
    """Count the records of each label with DuckDB and with polars."""
    arguments = argparse.ArgumentParser(description="SQL over TFRecord files")
    arguments.add_argument(
        "files", nargs="*", default=[FILES], help=f"default: {FILES}"
    )
    given = arguments.parse_args()

    # DuckDB finds the variable named in the query. It reads all columns of a table, so
    # select the needed ones; others are not decoded.
    labels = fr.open(given.files).select_columns(["label"])
    query = "SELECT label, count(*) AS n FROM labels GROUP BY label ORDER BY label"
    for label, n_records in duckdb.sql(query).fetchall():
        print(f"label {label}: {n_records:,} records")
    print(f"{len(labels):,} records in {len(labels.files)} files")

    # With a spec, byte strings are arrays, and SQL computes with their items.
    spec = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}
    garments = fr.open(given.files, features=spec)  # noqa: F841 (DuckDB finds it)
    query = "SELECT avg(list_sum(flatten(image)) / 784) FROM garments WHERE label = 0"
    [(brightness,)] = duckdb.sql(query).fetchall()
    print(f"mean pixel of T-shirts: {brightness:.1f}")

    # polars pushes down the columns and rows that a query needs.
    counts = fr.polars.scan(given.files).group_by("label").agg(pl.len())
    print(counts.sort("label").collect())


if __name__ == "__main__":
    main()
