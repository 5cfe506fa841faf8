"""What a backfill would do, in which order, why and at what price: pure, of values that others have gathered."""
