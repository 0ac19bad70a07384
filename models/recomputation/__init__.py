"""Selective checkpointing: modules of any network that compute their forward again in the backward pass."""
