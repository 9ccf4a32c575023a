"""Measures runs at different settings: what to unload, how long it takes, and what limits it."""
