"""Databases that are reached through a driver of any vendor: what to ask in each kind of SQL."""
