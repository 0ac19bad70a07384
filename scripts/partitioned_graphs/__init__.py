"""PyTorch's partitioner and a plan on one graph, for scripts/benchmark_partitioner.py."""
