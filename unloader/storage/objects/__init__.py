"""Prefixes in object stores as places: nothing here has a rename, a lock or a folder."""
