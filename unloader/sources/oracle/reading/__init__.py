"""Reading work units: statements, fetches, and the batches that are made of them."""
