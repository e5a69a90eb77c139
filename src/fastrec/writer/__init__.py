"""Writing: column conversion, shards and output files."""
