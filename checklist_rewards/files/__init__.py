"""Reading and writing files: rows (JSONL, CSV, Parquet), documents (JSON, YAML), and the store of answers."""
