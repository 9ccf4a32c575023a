"""What `numa.pool` is made of: starting one child, its side of the pipe, the frames between."""
