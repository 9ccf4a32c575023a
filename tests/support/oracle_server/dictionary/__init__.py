"""The views of the data dictionary."""
