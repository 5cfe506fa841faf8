"""Whether the live instance is really bounded."""
