"""What `numa.topology` is made of: readers of the kernel's files, each for one question."""
