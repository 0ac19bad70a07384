"""Latency: how many runs, what they took, and the statistics of it."""
