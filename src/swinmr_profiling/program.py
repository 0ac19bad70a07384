"""What this program is called: a file of the checkout, or a subcommand of the installed `swinmr-profile`.

Messages name a command that can be typed where the user is.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass

from swinmr_profiling import CHECKOUT

DISTRIBUTION = "swinmr-profiling"
DOOR = "swinmr-profile"


@dataclass(frozen=True)
class Subcommand:
    """file: in a checkout, from its top. module: below the package. summary: for `swinmr-profile --help`."""

    file: str
    summary: str

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


SUBCOMMANDS = {
    "profile": Subcommand(
        "scripts/profile_model.py", "parameters, MACs, latency, memory, the training batch"
    ),
    "recommend": Subcommand(
        "scripts/recommend_batch_size.py", "the training batch for any GPU, from a profile"
    ),
    "plan": Subcommand("scripts/plan_training.py", "how a batch trains on a GPU: what to recompute"),
    "fit": Subcommand("scripts/fit_inference.py", "the largest image or tile that infers on a GPU"),
    "compare": Subcommand("scripts/compare_profiles.py", "profiles side by side, and what of it is noise"),
    "pipeline": Subcommand("scripts/profile_pipeline.py", "what an image of a diffusion pipeline costs"),
    "generate": Subcommand("scripts/generate_image.py", "images by local pipelines, with what each cost"),
    "train": Subcommand("train.py", "train the network of a config"),
    "test": Subcommand("test.py", "measure a trained network on a test set"),
    "validate": Subcommand("validate_setup.py", "can this config be trained here?"),
    "init": Subcommand("init_configs.py", "write the example configs to ./configs"),
}
_SUBCOMMAND_OF_FILE = {command.file.removeprefix("scripts/"): name for name, command in SUBCOMMANDS.items()}
_COMMAND_FILE = re.compile(
    rf"(?<![\w./])(?:python )?(?:scripts/)?({'|'.join(map(re.escape, _SUBCOMMAND_OF_FILE))})(?!\w)"
)
# The subcommand that this process runs, None where it runs a file.
_running: str | None = None


def run_as(subcommand: str) -> None:
    """From now on this process is `swinmr-profile SUBCOMMAND`."""
    global _running
    _running = subcommand


def program_name(file: str) -> str:
    """The name of a running command for its own help and records: "profile_model.py", or "swinmr-profile profile"."""
    return file if _running is None else f"{DOOR} {_running}"


def in_this_program(text: str) -> str:
    """A message with the commands that it names as they are typed here; unchanged where this process runs a file."""
    if _running is None:
        return text
    return _COMMAND_FILE.sub(lambda found: f"{DOOR} {_SUBCOMMAND_OF_FILE[found.group(1)]}", text)


def version() -> str:
    """Of this checkout, or of the installed distribution."""
    if CHECKOUT is None:
        return importlib.metadata.version(DISTRIBUTION)
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    (found,) = re.findall(r'^version = "(.+)"$', text, re.MULTILINE)
    return found
