"""Where partition slices live: one contract (:mod:`base`), a reference model (:mod:`memory`) and DuckDB."""
