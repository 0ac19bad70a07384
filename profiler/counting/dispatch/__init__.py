"""What looks on while a model runs: the dispatch mode that counts, memory written, gradients, threads."""
