"""What is known of an asset, put together from ledger, event log and code, and the report about it."""
