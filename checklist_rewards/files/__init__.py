"""Rows read and written as JSONL, CSV or Parquet, documents as JSON or YAML, and the store of answers."""
