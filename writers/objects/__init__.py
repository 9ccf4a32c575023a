"""Object stores: bytes that become an object under a key instead of a file on a disk."""
