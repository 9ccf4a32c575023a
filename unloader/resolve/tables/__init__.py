"""From a request for several tables to resolved runs at one snapshot, anew or again."""
