"""Places of secrets, and the checks of keys."""
