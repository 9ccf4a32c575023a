"""Servers that speak the protocols of object stores, as separate processes."""
