"""Reading the weights that SwinIR and SwinMR are published with."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.models.errors import ModelError

# Where the files in the wild keep the state dict, the averaged weights first.
WRAPPERS = ("params_ema", "params", "state_dict", "model_state_dict", "model")
# What DataParallel and torch.compile put before every key, in either order.
PREFIXES = ("module.", "_orig_mod.")
MENTIONED_KEYS = 3


class NoFileError(OSError):
    """The name is of a folder, a pipe or a device."""


def refuse_pipes(file: Path) -> None:
    """Raises NoFileError for what is no ordinary file: opening a pipe waits for ever. FileNotFoundError for none."""
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        raise NoFileError("is a folder" if stat.S_ISDIR(mode) else "is no ordinary file")


def unwrap_state_dict(content: Any) -> dict[str, Tensor]:
    """The state dict inside a checkpoint: bare (`{iter}_G.pth`), or under `params_ema` or `params`.

    The prefixes of DataParallel and torch.compile are removed.
    Raises ModelError when there is no dict of tensors.
    """
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
            break
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


def load_weights(module: nn.Module, file: Path) -> None:
    """Loads a published or own checkpoint into a network; nothing in the file is executed.

    Masks and indices of official files are ignored, so any image size takes them.
    Raises ModelError for a file that cannot be read or that belongs to another architecture (naming the
    first keys that differ).
    """
    try:
        refuse_pipes(file)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(f"{file}: no such checkpoint") from error
    except NoFileError as error:
        raise ModelError(f"{file}: {error}") from error
    except Exception as error:  # torch.load raises half a dozen types for a file that is none of its own
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{file}: cannot be read as a checkpoint of tensors: {first_line}") from error
    try:
        state_dict = unwrap_state_dict(content)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error
    try:
        missing, unexpected = module.load_state_dict(state_dict, strict=False)
    except RuntimeError as error:
        sizes = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        raise ModelError(f"{file}: {'; '.join(sizes[:MENTIONED_KEYS]) or error}") from error
    if missing or unexpected:
        differs = [f"misses {key}" for key in missing[:MENTIONED_KEYS]]
        differs += [f"has {key}" for key in unexpected[:MENTIONED_KEYS]]
        raise ModelError(f"{file}: is of another architecture: {', '.join(differs)}")
