"""What the tests of resumed trainings share beside the fixtures."""

from swinmr_profiling.training.run.checkpoints import read_checkpoint, write_checkpoint
from swinmr_profiling.training.run.stopping import StopRequest

# Dropped paths make a step depend on the random state, too.
FOUR_STEPS = {"model.drop_path_rate": 0.5}


class StopBefore(StopRequest):
    """A signal that arrives before the n-th step (the loop asks once before every step)."""

    def __init__(self, step):
        super().__init__()
        self.questions_left = step

    def __bool__(self):
        self.questions_left -= 1
        if self.questions_left <= 0:
            self.signal_name = "SIGTERM"
        return self.questions_left <= 0


def edited_lines(run):
    """The lines about edits, without the indent."""
    if not any(line.startswith("edited since") for line in run.messages):
        return []
    return [line.strip() for line in run.messages if line.startswith("  ")]


def without_config(file):
    content = read_checkpoint(file)
    del content["config"], content["data"], content["format"], content["version"]
    write_checkpoint(content, file)
