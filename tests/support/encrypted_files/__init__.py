"""Readers of encrypted files that have nothing in common with the program, and keys for them."""
