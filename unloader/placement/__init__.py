"""Where workers sit on the machine, where they really were, and what a machine looks like."""
