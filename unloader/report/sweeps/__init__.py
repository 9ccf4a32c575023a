"""What a sweep wrote, read for its page: points, fitted curves, values of any type."""
