"""Small parts that are trained in place of a network's own weights."""
