"""The user's own code: the import of what a config names, and a network of it."""
