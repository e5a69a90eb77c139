"""Writing: `Writer`, shards and output files."""
