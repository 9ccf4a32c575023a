"""From a request and an open source to a run in which nothing is left to decide."""
