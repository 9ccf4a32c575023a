"""Places that secrets are found in, and what is demanded of them."""
