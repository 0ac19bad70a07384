"""The one error that costing or running a pipeline ends in when the user can do something about it."""


class PipelineError(ValueError):
    """A pipeline, option or component that cannot be used; one line: what is wrong, where, what to do."""
