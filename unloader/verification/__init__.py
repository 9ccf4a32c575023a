"""Checking finished output: files against the manifest, values against the source."""
