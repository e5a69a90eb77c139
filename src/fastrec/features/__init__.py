"""Specs of features, schemas, and how a schema is inferred."""
