"""Every command of the README runs as it stands there, long ones shorter as the table below says.

The first two blocks (set up, tests) are run by `.ci/run`, "Profile your own network" by
tests/scripts/test_profile_own_network.py, the others here, in a copy of the checkout.
"""

import re
import shlex
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

# A command and what it gets besides: the same work, fewer repetitions of fewer sizes.
SHORTER = {
    "scripts/profile_model.py --config configs/train_config.json --device cpu": (
        "--batch-sizes 1 --num-runs 1 --warmup 0"
    ),
    "scripts/profile_model.py --config configs/train_config_small.json --image-size 128 --batch-sizes 1,2 --depth 1": (
        "--num-runs 2 --device cpu"
    ),
    "scripts/profile_model.py --models resnet50,spandrel:RealPLKSR --image-size 64": (
        "--batch-sizes 1 --num-runs 1 --device cpu"
    ),
}
# And configs that train: 8 steps in place of 800.
SHORTER_CONFIGS = {
    "configs/train_packaged.json": (
        ('"total_steps": 800', '"total_steps": 8'),
        ('"validate_every_steps": 200', '"validate_every_steps": 4'),
        ('"checkpoint_every_steps": 200', '"checkpoint_every_steps": 4'),
    ),
}
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = ".venv/bin/python "


def blocks():
    """Lines of each block of commands, with the heading above it."""
    found = []
    for section in re.split(r"^(?=#+ )", README, flags=re.MULTILINE):
        heading = section.partition("\n")[0].lstrip("# ")
        found += [(heading, block.splitlines()) for block in BLOCK.findall(section)]
    return found


def commands(heading):
    (lines,) = [lines for name, lines in blocks() if name == heading]
    return lines


def run(line, cwd):
    """Runs a command of the README in a checkout; returns what it printed."""
    if line.startswith(".venv/bin/pip install "):
        # What .ci/run installs, [test], holds it.
        extra = re.fullmatch(r'\.venv/bin/pip install "\.\[(\w+)\]"', line).group(1)
        text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
        assert extra in re.search(r'^ *"swinmr-profiling\[([\w,]+)\]"', text, re.MULTILINE).group(1).split(
            ","
        )
        return ""
    assert line.startswith(PYTHON), line
    given = line.removeprefix(PYTHON)
    command = [*shlex.split(given), *shlex.split(SHORTER.get(given, ""))]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def shortened_checkout(copied_checkout):
    for name, changes in SHORTER_CONFIGS.items():
        text = (copied_checkout / name).read_text(encoding="utf-8")
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (copied_checkout / name).write_text(text, encoding="utf-8")
    return copied_checkout


def fenced(text, start):
    """The block of output that begins with a line."""
    return re.search(rf"^```\n({re.escape(start)}.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1)


def test_no_block_is_forgotten():
    assert [heading for heading, _ in blocks()] == [
        README.splitlines()[0].lstrip("# "),
        README.splitlines()[0].lstrip("# "),
        "Profile your own network",
        "What it prints",
        "Which batch size to train with",
        "Training",
    ]
    given = {line.removeprefix(PYTHON) for _, lines in blocks() for line in lines}
    assert SHORTER.keys() <= given


@pytest.mark.slow
def test_what_it_prints(shortened_checkout):
    first, *others = commands("What it prints")
    # The panel that the README shows is what the command prints.
    assert fenced(README, "ANSWER:") in run(first, shortened_checkout)
    for line in others:
        assert run(line, shortened_checkout)


@pytest.mark.slow
def test_which_batch_size_to_train_with(shortened_checkout):
    """And the table of levers in docs/training_batch.md is what the command prints."""
    page = (REPOSITORY / "docs/training_batch.md").read_text(encoding="utf-8")
    levers, auto, recommended = commands("Which batch size to train with")
    assert levers in page
    assert fenced(page, "Predicted largest batch per device") in run(levers, shortened_checkout).replace(
        "\n  Predicted largest", "\nPredicted largest"
    )
    run(auto, shortened_checkout)
    assert "RTX 3090" in run(recommended, shortened_checkout)


@pytest.mark.slow
def test_training(shortened_checkout):
    lines = commands("Training")
    printed = "".join(run(line, shortened_checkout) for line in lines)
    assert "step 8 of 8" in printed
    assert "zero-filled" in printed
