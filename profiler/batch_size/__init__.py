"""From memory to a batch size: GPUs, budgets, what fits, the search, the recommendation and its reasons."""
