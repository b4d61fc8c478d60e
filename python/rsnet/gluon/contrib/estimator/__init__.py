"""Training loops as objects."""
