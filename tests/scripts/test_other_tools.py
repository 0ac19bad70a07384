"""docs/other_tools.md: for each tool a line, and the command of each line does what the line says."""

import json
import shlex

import pytest

from swinmr_profiling.profiler.run.options.command_line import parse_profile_arguments
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/other_tools.md").read_text(encoding="utf-8")
ROWS = [row.split(" | ") for row in PAGE.splitlines() if row.startswith("| ") and "`scripts/" in row]
COMMANDS = [shlex.split(row[1].strip().strip("`")) for row in ROWS]
TOOLS = ("timm", "timm", "torchinfo", "fvcore", "hyperfine", "accelerate")
# A smaller input and fewer repetitions; of an option that stands twice the last counts.
SHORTER = {
    "--batch-sizes 1,32": "--batch-sizes 1 --image-size 64 --num-runs 2 --no-training",
    "--measure-training": "--batch-sizes 2 --image-size 64 --num-runs 1",
    "--module": "--batch-sizes 1 --num-runs 1 --no-training",
    "--flops-counter": "--batch-sizes 1 --image-size 64 --num-runs 1 --no-training",
    "--configs": "--batch-sizes 1 --image-size 64 --num-runs 2 --no-training",
    "--predict-only": "--image-size 64",
}
OWN = """
import torch

class Class(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(3, 8, 3, stride=16), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 5))
"""


def test_each_tool_has_a_line_with_a_command_that_is_understood():
    assert [next(tool for tool in TOOLS if tool in row[0]) for row in ROWS] == list(TOOLS)
    for script, *arguments in COMMANDS:
        assert script == "scripts/profile_model.py"
        parse_profile_arguments(arguments)  # a mistake ends the process


def shortened(arguments):
    (more,) = [more for words, more in SHORTER.items() if words in shlex.join(arguments)]
    return [*arguments, *shlex.split(more), "--device", "cpu", "--cross-check", "off"]


def held(tool, arguments, folder, stdout):
    """What the line says is in the profile."""
    if tool == "hyperfine":
        files = sorted((folder / "results").glob("profile_train_config_*.json"))
        assert len(files) == 2
        for file in files:
            timing = json.loads(file.read_text())["batch_profiling"]["1"]["timing"]
            assert (len(timing["samples_ms"]), len(timing["warmup_ms"])) == (2, 3)
        return
    profile = json.loads((folder / "results/profile_results.json" if tool == "fvcore" or "--module" in arguments
                          else folder / "results/profile_resnet50.json").read_text())  # fmt: skip
    architecture = profile["architecture"]
    if tool == "timm":
        assert architecture["total_parameters"] == 25_557_032  # of torchvision's page of ResNet-50, too
    if "--measure-training" in arguments:
        assert profile["batch_profiling"]["2"]["training"]["source"] == "measured"
    if tool == "torchinfo":
        # 8 x 3 x 9 + 8, and 1568 x 5 + 5; 14 x 14 places of the first.
        assert architecture["total_parameters"] == 224 + 7845
        assert architecture["macs"] == 14 * 14 * 8 * 27 + 1568 * 5
        assert "(Linear): 7,840 MACs, 7,845 parameters" in stdout
    if tool == "fvcore":
        quoted = architecture["quoted_counter"]
        assert (quoted["counter"], quoted["input_shapes"]) == ("fvcore", [[1, 1, 64, 64]])
        assert sum(part["macs"] for part in quoted["parts"]) == quoted["figure"] - architecture["macs"]
    if tool == "accelerate":
        (entry,) = profile["recommendation"]["training"]
        assert entry["batch_size"] > 0
        assert profile["memory_model"]["source"] == "predicted"


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "command"), list(zip(TOOLS, COMMANDS, strict=True)))
def test_the_command_of_a_line_does_what_the_line_says(tool, command, profile_model, tmp_path):
    (tmp_path / "path/to").mkdir(parents=True)
    (tmp_path / "path/to/file.py").write_text(OWN)
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    arguments = shortened(command[1:])
    run = profile_model(*arguments, training="--no-training" not in arguments)
    assert run.returncode == 0, run.stderr
    held(tool, arguments, tmp_path, run.stdout)
