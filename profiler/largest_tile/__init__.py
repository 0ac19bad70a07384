"""The largest image or tile that infers on a card, predicted size by size, and how an image is cut into tiles."""
