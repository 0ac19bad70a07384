"""A step in the place of this project's own, traced on tensors without data."""
