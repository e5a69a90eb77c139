"""Parse and encode records in memory."""
