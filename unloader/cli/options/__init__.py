"""Options: what they are called, what values they take, and what they mean together."""
