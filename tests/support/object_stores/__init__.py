"""Servers that speak the protocols of object stores, as processes of their own."""
