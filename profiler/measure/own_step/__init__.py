"""A step in the place of this project's own: which it is, how it is measured, and on tensors without data."""
