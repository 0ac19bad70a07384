"""Devices, latency and its statistics, the forward pass, the training step, the memory of the host."""
