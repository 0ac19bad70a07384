"""Files of weights: read without trust, and the network found that they are of."""
