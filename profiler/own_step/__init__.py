"""A live module or a training step of the user's own: counted, predicted and recommended for, from Python."""
