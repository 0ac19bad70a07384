"""A training step on tensors without data, and every allocation that it makes."""
