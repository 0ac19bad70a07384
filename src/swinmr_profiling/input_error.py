"""What a command tells its user in one line."""


class InputError(ValueError):
    """What was given cannot be used: the message is all that the user needs, and a command ends with status 2."""
