"""`unloader sweep` with scipy, which the environment of the tests does not have."""
