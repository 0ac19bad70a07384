"""What tests of commands share: running one as a user does, small configs, and the profile's JSON Schema."""

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

# Before torch is imported, and for the commands that tests start: two test processes whose threads spin for two
# cores each would spend their time waiting for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jsonschema
import pytest

from tests.fork_server import ForkServer

REPOSITORY = Path(__file__).resolve().parent.parent
# A shell starts background jobs with Ctrl-C ignored, nohup starts its own with SIGHUP ignored, and commands that
# inherit that rightly keep it so: the tests that send these signals could wait for ever.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
COMMAND_TIMEOUT_S = 300
TRAINING_OPTIONS = (
    "--predict-only",
    "--gpu",
    "--measure-training",
    "--no-training",
    "--target-batch",
    "--list-gpus",
)

TINY_SWINIR = {
    "net_type": "swinir",
    "img_size": 32,
    "window_size": 8,
    "depths": [2],
    "num_heads": [2],
    "embed_dim": 12,
}


def pytest_collection_modifyitems(items):
    """`@pytest.mark.sampled(n)`: of the cases of a test, n are quick, evenly spaced; the others are slow."""
    cases = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for group in cases.values():
        kept = group[0].get_closest_marker("sampled").args[0]
        quick = {number * len(group) // kept for number in range(kept)}
        for number, item in enumerate(group):
            if number not in quick:
                item.add_marker(pytest.mark.slow)


# Variables that an interpreter or a loader reads once, when it starts.
READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "LC_", "LANG", "CUDA_", "TORCH")


def run_command(*arguments, cwd, env=None, timeout=COMMAND_TIMEOUT_S, stdin=subprocess.DEVNULL, fresh=False):
    """Runs a Python file of the repository in a process of its own; returns CompletedProcess with text.

    The process is forked from one that has imported torch. fresh: a new interpreter instead, for what depends on
    how a process starts.
    """
    command = [str(REPOSITORY / arguments[0]), *map(str, arguments[1:])]
    environment = dict(os.environ) if env is None else dict(env)
    changed = {name for name, value in environment.items() if os.environ.get(name) != value}
    changed |= os.environ.keys() - environment.keys()
    if fresh or any(name.startswith(READ_AT_START) for name in changed):
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd,
            env=env,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    return _fork_server().run(command, cwd, environment, stdin, timeout)


@functools.cache
def _fork_server():
    """One of each test process, which it does not outlive."""
    return ForkServer()


@pytest.fixture
def profile_model(tmp_path):
    """Runs `scripts/profile_model.py` in the test's folder.

    Without the prediction of training and without other counters, which take ten seconds each, unless the test asks
    for them (training=True or an option of it; other_counters=True).
    """

    def run(*arguments, training=False, other_counters=False, **options):
        options.setdefault("cwd", tmp_path)
        if not training and not any(str(argument).startswith(TRAINING_OPTIONS) for argument in arguments):
            arguments = (*arguments, "--no-training")
        if not other_counters and "--cross-check" not in arguments:
            arguments = (*arguments, "--cross-check", "off")
        return run_command("scripts/profile_model.py", *arguments, **options)

    return run


@pytest.fixture
def tiny_config(tmp_path):
    """Writes a config of a network that runs in milliseconds; returns its file."""

    def write(name="tiny.json", model=None, **sections):
        file = tmp_path / name
        content = {"model": {**TINY_SWINIR, **(model or {})}, "data": {"use_patches": False}, **sections}
        file.write_text(json.dumps(content))
        return file

    return write


@pytest.fixture
def custom_config(tmp_path):
    """Writes a module with the user's own network and a config that names it; returns the config's file."""

    def write(source, class_name="Network", kwargs=None, input_shapes=((1, 8, 8),)):
        (tmp_path / "own_network.py").write_text(source)
        file = tmp_path / "custom.json"
        model = {
            "net_type": "custom",
            "target": f"own_network:{class_name}",
            "kwargs": kwargs or {},
            "input_shapes": [list(shape) for shape in input_shapes],
        }
        file.write_text(json.dumps({"model": model}))
        return file

    return write


@pytest.fixture(scope="session")
def profile_schema():
    """Validator of the committed schema."""
    schema = json.loads((REPOSITORY / "profiler/record/profile.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture
def read_profile(profile_schema):
    """Reads a written profile and holds it against the schema."""

    def refuse_constant(name):
        raise AssertionError(f"{name} in a JSON file")

    def read(source):
        text = source.read_text() if isinstance(source, Path) else source
        profile = json.loads(text, parse_constant=refuse_constant)
        errors = [f"{list(e.absolute_path)}: {e.message[:300]}" for e in profile_schema.iter_errors(profile)]
        assert errors == []
        return profile

    return read


@pytest.fixture(scope="session")
def tiny_pipeline_folders(tmp_path_factory):
    """Folders of the tiny diffusion pipelines, by the kind of denoiser they have: "unet", "transformer"."""
    from tests.tiny_pipelines import PIPELINES

    root = tmp_path_factory.mktemp("pipelines")
    folders = {}
    for kind, build in PIPELINES.items():
        folders[kind] = root / kind
        build(root / f"{kind}-parts").save_pretrained(folders[kind])
    return folders


@pytest.fixture
def load_tiny_pipeline(tiny_pipeline_folders):
    """Loads one of them from its folder."""

    def load(kind):
        from swinmr_profiling.profiler.pipelines.live.generation import (
            GenerationSettings,
            load_pipeline_object,
        )

        pipe = load_pipeline_object(str(tiny_pipeline_folders[kind]), GenerationSettings("", device="cpu"))
        pipe.set_progress_bar_config(disable=True)
        return pipe

    return load
