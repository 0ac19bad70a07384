"""What building a network can fail with."""

from swinmr_profiling.input_error import InputError


class ModelError(InputError):
    """The config names a network that cannot be built; the message is one line for the user."""

    def __init__(self, message: str) -> None:
        # What a library or the user's own class said may be a page.
        super().__init__(message.split("\n", 1)[0])
