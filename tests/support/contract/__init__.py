"""Tables of hostile values that several sources must read alike."""
