"""CUDA's caching allocator as PyTorch has it, replayed: pure functions of the order of allocations."""
