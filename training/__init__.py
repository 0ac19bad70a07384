"""k-space and masks, data, losses, metrics, and what trains a network with them."""
