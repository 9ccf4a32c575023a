"""The Oracle that tests unload from, and what its values must become."""
