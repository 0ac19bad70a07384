"""The losses and the one training step."""
