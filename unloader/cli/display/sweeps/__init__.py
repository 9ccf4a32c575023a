"""Sweeps at the terminal."""
