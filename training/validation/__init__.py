"""Validation while training, and its metrics."""
