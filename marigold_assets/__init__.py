"""Safe partitioned backfills for Dagster."""
