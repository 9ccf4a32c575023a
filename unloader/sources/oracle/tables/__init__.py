"""What tables there are and how their rows lie, from the data dictionary."""
