"""k-space, masks, and what they do to an image."""
