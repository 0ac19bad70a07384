"""What building a network can fail with."""


class ModelError(ValueError):
    """The config names a network that cannot be built; the message is one line for the user."""
