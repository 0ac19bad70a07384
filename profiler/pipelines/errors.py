"""The one error that costing or running a pipeline ends in when the user can do something about it."""

from swinmr_profiling.input_error import InputError


class PipelineError(InputError):
    """A pipeline, option or component that cannot be used; one line: what is wrong, where, what to do."""

    def __init__(self, message: str) -> None:
        # What a library said may be a page.
        super().__init__(message.split("\n", 1)[0])
