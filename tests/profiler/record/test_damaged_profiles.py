"""Mutants of valid profiles through the commands that read them: an answer, or one clear line; never a traceback."""

import contextlib
import copy
import io
import json
import random
import sys
from pathlib import Path

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.batch_size.choice_for_training import (
    BatchSizeError,
    Device,
    choose_batch_size,
)
from swinmr_profiling.scripts import compare_profiles, recommend_batch_size
from tests import made_profiles
from tests.training_profiles import failed, gpu_of, measured, memory_model, profile

MUTANTS, SEED = 60, 17
GPU_TRAINING = {1: measured(1200, 10.0), 2: measured(2300, 15.0), 8: failed()}
VALUES = (
    None, 0, -1, 1, 1.5, True, "", "text", [], {}, [1], {"a": 1}, 1e308, 10**30, 10**23, 2**63, "\x00", "\ud800",
    [None], "1" * 5000,
)  # fmt: skip
CONFIG = config_from_dict({"data": {"batch_size": "auto"}, "model": {"net_type": "swinir", "img_size": 64}})


def valid_profiles():
    own = made_profiles.recommended("NVIDIA GeForce RTX 3090", 24, 4, 4477)
    advice = {"inference": None, "training": [own]}
    return [
        made_profiles.profile(),
        made_profiles.with_training(),
        {**made_profiles.with_training(), "schema_version": 1},
        made_profiles.ORIGINAL,
        profile(model=memory_model(), blocks=GPU_TRAINING, gpu=gpu_of(24124), recommendation=advice),
        profile(blocks=GPU_TRAINING, gpu=gpu_of(24124)),
    ]


def paths_of(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


def place_of(content, path):
    for key in path[:-1]:
        content = content[key]
    return content


def mutant(rng):
    """One value gone, exchanged with one from elsewhere, of another kind, or of another size; sometimes three."""
    content = copy.deepcopy(rng.choice(valid_profiles()))
    for _ in range(rng.choice((1, 1, 3))):
        paths = list(paths_of(content))
        path = rng.choice(paths)
        place, key = place_of(content, path), path[-1]
        how = rng.randrange(4)
        if how == 0:
            del place[key]
        elif how == 1:
            other = rng.choice(paths)
            place[key] = copy.deepcopy(place_of(content, other)[other[-1]])
        elif how == 2 and type(place[key]) in (int, float):
            place[key] *= rng.choice((0, -1, 2, 10**6, 10**15))
        else:
            place[key] = rng.choice(VALUES)
    return json.dumps(content)


def recommend(file):
    return recommend_batch_size.main([file, "--gpu-memory", "24GiB", "--target-batch", "64"])


def compare(file):
    folder = Path(file).parent
    good = folder / "good.json"
    good.write_text(json.dumps(made_profiles.profile()))
    return compare_profiles.main([str(good), file, "--html", str(folder / "c.html")])


def train(file):
    device = Device("RTX 3090", 24 * 2**30)
    try:
        choose_batch_size(CONFIG, Path(file), device, config_file=Path("c.json"), loss="x", allow_stale=True)
    except BatchSizeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


COMMANDS = {"recommend": recommend, "compare": compare, "train": train}


def answer(command, text, folder):
    """Exit status and lines of standard error."""
    file = folder / "mutant.json"
    file.write_text(text)
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        code = COMMANDS[command](str(file))
    return code, errors.getvalue().splitlines()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_mutant_is_answered_or_refused_in_one_line(command, tmp_path):
    rng = random.Random(SEED)
    codes = []
    for _ in range(MUTANTS):
        text = mutant(rng)
        code, lines = answer(command, text, tmp_path)
        codes.append(code)
        assert code in (0, 2, 3, 4), (code, text)
        if code:
            assert len(lines) == 1, (lines, text)
            assert lines[0].startswith("error: ")
    assert 0 in codes
    assert 2 in codes


def changed(path, value, content=None):
    content = copy.deepcopy(made_profiles.with_training() if content is None else content)
    place_of(content, path)[path[-1]] = value
    return json.dumps(content)


def nested(levels):
    """A module tree of so many levels."""
    node = '{"name":"m","path":"m","class":"M","macs":1,"own":{},"parameters":1,"children":['
    text = changed(("architecture", "by_module"), "tree")
    return text.replace('"tree"', node * levels + "]}" * levels)


SETTING = ("memory_model", "settings", 0)
FOUND = {
    # The first, and the version of torch, were tracebacks; the others are what was tried around them.
    "a memory of 1e308 MiB in the original script": changed(
        ("single_image", "memory", "peak_mb"), 1e308, made_profiles.ORIGINAL
    ),
    "a memory of 1e308 bytes": changed(("batch_profiling", "1", "memory", "peak_bytes"), 1e308),
    "more bytes than a float holds": changed(("recommendation", "training", 0, "needed_bytes"), 10**400),
    "a throughput of 0, of which a time would be made": changed(
        ("batch_profiling", "1", "training", "images_per_second"), 0
    ),
    "a version of torch that is none": changed(("memory_model", "torch_version"), "new"),
    "a batch size of 5000 digits": changed((*SETTING, "sizes"), {"1" * 5000: {}}),
    "batches replayed from 10^20 on": changed((*SETTING, "affine_from_batch"), 10**20),
    "a module tree of 300 levels": nested(300),
    "a module tree of 3000 levels": nested(3000),
    "lists in lists": changed(("warnings",), "here").replace('"here"', "[" * 5000 + "]" * 5000),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", FOUND)
def test_what_a_mutant_found(command, what, tmp_path):
    code, lines = answer(command, FOUND[what], tmp_path)
    assert code in (0, 2), lines
    assert len(lines) == (1 if code else 0)


def test_a_gpu_measured_in_another_setting_than_the_config_s_is_answered_by_the_prediction(tmp_path):
    content = profile(model=memory_model(), blocks={1: measured(1200, precision="bf16")}, gpu=gpu_of(24124))
    file = tmp_path / "p.json"
    file.write_text(json.dumps(content))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert recommend_batch_size.main([str(file)]) == 0
    assert "(predicted, not verified)" in said.getvalue()
