"""User operators: an operator registry, a kernel registry and a gradient registry."""
