"""How far a run is: worked out from its events, kept where its files go, read by others."""
