"""Write TFRecord files: `Writer`, shards and output files."""
