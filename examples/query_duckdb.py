"""Query TFRecord files as a table with DuckDB and polars.

usage: python examples/query_duckdb.py [FILES ...]

FILES are TFRecord files of tf.train.Example with features "image" and "label",
by default those of examples/fashion_mnist.py. Needs duckdb and polars.
"""

from __future__ import annotations

import sys

import duckdb
import polars as pl

import fashion_mnist
import fastrec as fr


def main(files: list[str]) -> None:
    """Count the records of each label with DuckDB and with polars."""
    # DuckDB finds the variable named in the query. It reads all columns of a table, so
    # select the needed ones; others are not decoded. In a terminal:
    # fastrec query FILES "SELECT label, count(*) FROM records GROUP BY label"
    ds = fr.open(files).select_columns(["label"])
    # Text is VARCHAR, and at most one value a value or NULL, as the schema has found.
    records = fr.arrow.RecordBatchReader(ds, **ds.schema.arrow_options)  # noqa: F841
    query = "SELECT label, count(*) AS n FROM records GROUP BY label ORDER BY label"
    for label, n_records in duckdb.sql(query).fetchall():
        print(f"label {label}: {n_records:,} records")
    print(f"{len(ds):,} records in {len(ds.files)} files")

    # With a spec, byte strings are arrays, and SQL computes with their items.
    spec = {"image": fr.Raw((28, 28), "uint8"), "label": fr.FixedLen((), "int64")}
    garments = fr.open(files, features=spec)  # noqa: F841 (DuckDB finds it)
    query = "SELECT avg(list_sum(flatten(image)) / 784) FROM garments WHERE label = 0"
    [(brightness,)] = duckdb.sql(query).fetchall()
    print(f"mean pixel of T-shirts: {brightness:.1f}")

    # polars pushes down the columns and rows that a query needs.
    counts = fr.polars.scan(files).group_by("label").agg(pl.len())
    print(counts.sort("label").collect())


if __name__ == "__main__":
    main(sys.argv[1:] or fashion_mnist.files()[:1])
