"""Reading the weights that SwinIR and SwinMR are published with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from swinmr_profiling.models.checkpoints.checkpoint_files import read_checkpoint
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.lora import BASE, has_adapters, with_adapters

# Where the files in the wild keep the state dict, the averaged weights first.
WRAPPERS = (
    "params_ema", "params-ema", "params", "state_dict", "model_state_dict", "model", "net", "net_g", "netG", "G",
    "generator",
)  # fmt: skip
# What DataParallel and torch.compile put before every key, in either order.
PREFIXES = ("module.", "_orig_mod.")
# What trainers put there (Lightning, KAIR's models); some networks (DnCNN, ESRGAN of old) call their own parts so.
HEADS = ("model.", "netG.", "net_g.", "net.", "generator.", "network.")
# What stands beside the network in a trainer's file: its averaged copy, its loss, its discriminator.
BESIDE = (
    "netD.", "net_d.", "ema.", "model_ema.", "loss.", "criterion.", "perceptual.", "discriminator.", "cri_", "lpips.",
)  # fmt: skip
MENTIONED_KEYS = 3


def unwrap_state_dict(content: Any) -> dict[str, Tensor]:
    """The state dict inside a checkpoint: bare (`{iter}_G.pth`), or under `params_ema` or `params`.

    The prefixes of DataParallel and torch.compile are removed.
    Raises ModelError when there is no dict of tensors.
    """
    # Twice: some files hold the averaged weights inside the model's own dict.
    for _ in range(2):
        inside = next(
            (w for w in WRAPPERS if isinstance(content, dict) and isinstance(content.get(w), dict)), None
        )
        if inside is None:
            break
        content = content[inside]
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(v, Tensor) for v in content.values())
    ):
        raise ModelError(
            f"holds no state dict (looked for a dict of tensors, also under {', '.join(WRAPPERS)})"
        )
    while any(all(key.startswith(prefix) for key in content) for prefix in PREFIXES):
        content = {key.partition(".")[2]: tensor for key, tensor in content.items()}
    return content


def state_dict_in(content: Any, file: Path) -> dict[str, Tensor]:
    """The state dict inside what was read of a file, which the ModelError for none names."""
    try:
        return unwrap_state_dict(content)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error


def readings(state_dict: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """What the network's own state dict may be: as it is, then without a trainer's parts and heads, one by one."""
    yield state_dict
    network = {key: tensor for key, tensor in state_dict.items() if not key.startswith(BESIDE)}
    while network:
        head = next((h for h in (*HEADS, *PREFIXES) if all(key.startswith(h) for key in network)), None)
        if head is None:
            return
        network = {key.removeprefix(head): tensor for key, tensor in network.items()}
        yield network


def load_weights(module: nn.Module, file: Path) -> None:
    """Loads a published or own checkpoint into a network; nothing in the file is executed.

    Masks and indices of official files are ignored, so any image size takes them.
    Raises ModelError for a file that cannot be read or that belongs to another architecture (naming the
    first keys that differ).
    """
    state_dict = state_dict_in(read_checkpoint(file), file)
    try:
        wanted = set(module.state_dict())
        if has_adapters(module):
            wanted |= {key.replace(BASE, ".") for key in wanted}
        # The first of those that have most of the network's own names.
        state_dict = max(readings(state_dict), key=lambda reading: len(wanted & reading.keys()))
        state_dict = with_adapters(module, state_dict) if has_adapters(module) else state_dict
        missing, unexpected = module.load_state_dict(state_dict, strict=False)
    except RuntimeError as error:
        sizes = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        others = [line.strip() for line in str(error).splitlines()[-1:]]
        raise ModelError(f"{file}: {'; '.join((sizes or others)[:MENTIONED_KEYS])}") from error
    if missing or unexpected:
        differs = [f"misses {key}" for key in missing[:MENTIONED_KEYS]]
        differs += [f"has {key}" for key in unexpected[:MENTIONED_KEYS]]
        raise ModelError(f"{file}: is of another architecture: {', '.join(differs)}")
