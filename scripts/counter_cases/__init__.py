"""Operators and networks whose MACs are known another way, for the counters' benchmarks and tests."""
