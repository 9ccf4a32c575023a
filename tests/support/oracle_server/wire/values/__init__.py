"""Values of every type as bytes, and back."""
