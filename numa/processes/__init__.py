"""What `numa.pool` is made of: a server that workers are forked from, a worker, a channel."""
