"""Object stores: what is written as an object under a key, not as a file of this machine."""
