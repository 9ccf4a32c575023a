"""Manifests and sweeps that pages are made of, without a database."""
