"""Documents held against their schemas."""
