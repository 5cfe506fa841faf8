"""What the code of a function is: its fingerprint, what it reaches, and what may be impure in it. No Dagster here."""
