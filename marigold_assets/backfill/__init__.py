"""Backfills through Dagster: what is to be planned, launch, status and cancel."""
