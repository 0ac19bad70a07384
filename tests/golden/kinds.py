"""Profiles of every kind, made by the real command, and what of them must not change by accident.

`python -m tests.golden.kinds` writes them anew; a change of these files is a change of what users read.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY, TINY_SWINIR, run_command

HERE = Path(__file__).resolve().parent
FAULTY = REPOSITORY / "tests/scripts/faulty_network.py"
QUICK = ("--device", "cpu", "--num-runs", "2", "--warmup", "0")
PREDICT = ("--device", "cpu", "--predict-only", "--gpu", "RTX 3090", "--gpu", "A100 80GB SXM")
TINY = {"model": TINY_SWINIR, "data": {"use_patches": False, "batch_size": 2}}
TINY_UNET = {
    "net_type": "unet_denoiser",
    "img_size": 16,
    "base_channels": 8,
    "channel_multipliers": [1, 2],
    "num_res_blocks": 1,
    "attention_resolutions": [8],
    "head_channels": 4,
    "num_groups": 4,
}


def command(folder: Path, config: dict[str, Any], *options: str) -> dict[str, Any]:
    """The profile that the main command writes of a config; the command's exit code as "exit_code" beside it."""
    file = folder / "golden.json"
    file.write_text(json.dumps(config))
    output = folder / "profile.json"
    done = run_command("scripts/profile_model.py", "--config", file, "--output", output, *options, cwd=folder)
    assert output.exists(), done.stderr
    return {"exit_code": done.returncode, **json.loads(output.read_text())}


def faulty(folder: Path, fault: str | None, *options: str) -> dict[str, Any]:
    """The same of a network that fails at batch 4."""
    shutil.copy(FAULTY, folder)
    model = {
        "net_type": "custom",
        "target": "faulty_network:Faulty",
        "kwargs": {"fault": fault, "moment": "batch", "batch": 4},
        "input_shapes": [[1, 8, 8]],
    }
    options = ("--trust-config", "--no-training", "--cross-check", "off", "--batch-sizes", "1,4,8", *options)
    return command(folder, {"model": model}, *QUICK, *options)


def resumed(folder: Path) -> dict[str, Any]:
    """A run whose measuring process was killed at batch 4, gone on with by the same command."""
    faulty(folder, "kill")
    return faulty(folder, "kill", "--resume")


def read_back(content: dict[str, Any]) -> dict[str, Any]:
    """A profile that is not made here, as it is read today."""
    from swinmr_profiling.profiler.record.files.reading import parse_profile

    return parse_profile(json.dumps(content), "golden.json").profile.to_json()


def from_original_script(folder: Path) -> dict[str, Any]:
    """The script that this layout comes from."""
    from tests.made_profiles import ORIGINAL

    return read_back(ORIGINAL)


def on_a_gpu(folder: Path) -> dict[str, Any]:
    """Measured on a GPU that is not here, with its training."""
    from tests.made_profiles import with_training

    return read_back(with_training())


KINDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "cpu": lambda folder: command(folder, TINY, *QUICK, "--batch-sizes", "1,2"),
    "predicted": lambda folder: command(folder, TINY, *PREDICT),
    "predicted_bf16": lambda folder: command(
        folder, {**TINY, "system": {"mixed_precision": "bf16"}}, *PREDICT
    ),
    "denoiser": lambda folder: command(folder, {"model": TINY_UNET}, *PREDICT),
    "out_of_memory": lambda folder: faulty(folder, "out_of_memory"),
    "killed": lambda folder: faulty(folder, "kill"),
    "exception": lambda folder: faulty(folder, "shape_error"),
    "resumed": resumed,
    "from_original_script": from_original_script,
    "on_a_gpu": on_a_gpu,
}

# What a run, a machine or a library decides: only its kind is held to.
VOLATILE = {
    "environment",
    "timing",
    "memory",
    "warnings",
    "samples_ms",
    "warmup_ms",
    "config_sha256",
    "memory_fingerprint",
    "created",
    "created_at",
    "torch_version",
    "command_line",
    "counters",
    "expected",
    "inference",
    "throughput_images_per_second",
    "expected_ms",
}


def what_must_stay(value: Any, volatile: bool = False, depth: int = 0) -> Any:
    """Keys of a profile, with the figures and enums that do not depend on the machine; prose by its kind alone."""
    if isinstance(value, dict):
        return {
            key: what_must_stay(inner, volatile or key in VOLATILE, depth + (key == "children"))
            for key, inner in value.items()
            # The config has tests of its own.
            if key != "resolved"
        }
    if isinstance(value, list):
        if volatile or depth > 2:  # of the module tree, two storeys are enough
            return "list"
        return [what_must_stay(inner, volatile, depth) for inner in value]
    if isinstance(value, str):
        return "text" if volatile or " " in value or "/" in value else value
    return "number" if volatile and value is not None else value


def make(kind: str, folder: Path) -> Any:
    """What must stay of the profile of a kind."""
    return what_must_stay(KINDS[kind](folder))


def main() -> None:
    for kind in sys.argv[1:] or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(make(kind, Path(folder)), indent=1, sort_keys=True)
        (HERE / f"{kind}.json").write_text(text + "\n")
        print(kind)


if __name__ == "__main__":
    main()
