"""The protocol: packets, messages, what both sides agree on."""
