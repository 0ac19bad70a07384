"""Counting, latency, memory, recommendation, and the Profile record that holds them."""
