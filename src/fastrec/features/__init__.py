"""Feature specs, schemas and schema inference."""
