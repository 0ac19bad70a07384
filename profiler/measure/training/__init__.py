"""The training step, measured and counted."""
