"""How fast the product is beside the floor and beside its peer: `python -m benchmarks --help`."""
