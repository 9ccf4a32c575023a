"""Databases, one module each, chosen by name in `registry` and imported on use."""
