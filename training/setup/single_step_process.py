"""A process that makes one training step of one sample, and says what it took: nothing it does ends the command.

Reads a JSON request from standard input, writes a JSON answer as the last line of standard output.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.process import ask_once

# The kernel, when memory runs out, takes this process and not the user's others (of -1000 to 1000).
OOM_SCORE_ADJUSTMENT = 1000
KIBIBYTE = 1024


@dataclass(frozen=True)
class StepReport:
    """One step: its loss, its seconds, and the peak memory in bytes, of which kind."""

    loss: float
    seconds: float
    peak_bytes: int
    memory_kind: str


class StepFailedError(Exception):
    """The step was not made; one line of why."""


def run_single_step(
    config: dict[str, Any], device: str, *, trust_config: bool, real_sample: bool, timeout_s: float
) -> StepReport:
    """Starts the process and waits for it.

    config: as `ExperimentConfig.model_dump(mode="json")`. real_sample: the first training sample, else random values.
    Raises StepFailedError, also when the process is killed or takes longer than `timeout_s`.
    """
    request = {
        "config": config,
        "device": device,
        "trust_config": trust_config,
        "real_sample": real_sample,
    }
    module = "swinmr_profiling.training.setup.single_step_process"
    try:
        ended = ask_once(module, json.dumps(request), timeout_s)
    except TimeoutError:
        raise StepFailedError(f"no step within {timeout_s:g} s (--timeout)") from None
    if ended.answer is None:
        raise StepFailedError(f"the process of the step ended by {ended.how}")
    if "error" in ended.answer:
        raise StepFailedError(ended.answer["error"])
    return StepReport(**ended.answer)


def main() -> None:
    """Entry of the process."""
    replace_unknown_characters()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE_ADJUSTMENT))
    request = json.loads(sys.stdin.read())
    try:
        answer = make_step(request)
    except Exception as error:  # whatever a network or its data raises is the answer
        from swinmr_profiling.training.errors import first_line

        answer = {"error": f"{type(error).__name__}: {first_line(error)}"}
    print(json.dumps(answer))


def make_step(request: dict[str, Any]) -> dict[str, Any]:
    """The step that `train.py` makes, of one sample."""
    import torch

    from swinmr_profiling.configs import config_from_dict
    from swinmr_profiling.models.registry import build_model
    from swinmr_profiling.training.distributed import World
    from swinmr_profiling.training.run.own_training import OwnTraining
    from swinmr_profiling.training.step.attention_kernels import allow_attention_kernels
    from swinmr_profiling.training.step.losses import build_loss
    from swinmr_profiling.training.step.training_step import build_settings, build_state, training_step

    config = config_from_dict(request["config"])
    config = config.model_copy(update={"training": config.training.model_copy(update={"accumulate": 1})})
    device = torch.device(request["device"])
    if config.system.threads is not None:
        torch.set_num_threads(config.system.threads)
    torch.use_deterministic_algorithms(config.system.deterministic)
    allow_attention_kernels(config.system.attention, device.type)
    torch.manual_seed(config.system.seed)
    built = build_model(config, trust_config=request["trust_config"])
    micro_batch = _one_sample(config, built, device, request["real_sample"])
    # In the order of training/run/loop.py.
    loss = build_loss(config).to(device)
    if config.training.step is not None:
        own = OwnTraining(config, World(0, 1, device), trust_config=request["trust_config"])
        state = own.state(loss, device)
    else:
        module = built.module.to(device)
        if config.system.channels_last:
            module.to(memory_format=torch.channels_last)
        state = build_state(config, module, loss, total_steps=1)
        if config.system.compile:
            state.network = cast("torch.nn.Module", torch.compile(state.network))
    started = time.perf_counter()
    outcome = training_step(state, build_settings(config, device.type), [micro_batch])
    loss_value = float(outcome.loss)  # waits for the device
    return asdict(StepReport(loss_value, time.perf_counter() - started, *_peak(device)))


def _one_sample(config, built, device, real: bool):
    from torch.utils.data import default_collate

    from swinmr_profiling.training.data.dataset import build_dataset, input_channels
    from swinmr_profiling.training.denoising.denoising_step import build_preparation, refuse_further_inputs
    from swinmr_profiling.training.step.example_batches import example_batch, in_loader_s_layout
    from swinmr_profiling.training.step.own_step import on_device

    prepare = build_preparation(config)
    refuse_further_inputs(built, config)
    batch = (
        default_collate([build_dataset(config, "train")[0]])
        if real
        else example_batch(built, 1, "training", channels=input_channels(config))
    )
    if config.training.step is not None:
        return on_device(batch if real else in_loader_s_layout(batch), device)
    return prepare(batch, device, 0, 0)


def _peak(device) -> tuple[int, str]:
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_reserved(device), "reserved on the GPU"
    import resource

    # Linux counts in kibibytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else KIBIBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "resident memory of the whole process"
