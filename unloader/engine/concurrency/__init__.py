"""How many places work at a time: measured rates, a search for the best number, limits, pauses."""
