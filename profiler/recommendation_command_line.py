"""The options of `recommend_batch_size.py`, and the budgets they describe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from fractions import Fraction

from profiler.command_line import OneLineParser, positive_int
from profiler.gpus import MEMORY_HELP, Gpu, GpuNameError, MemorySizeError, find_gpu, parse_bytes
from profiler.prediction.workspaces import workspaces_for
from profiler.training_budget import DEFAULT_HEADROOM, Budget, has_bf16
from profiler.training_profile_file import TrainingProfile

# cuBLAS keeps a workspace for each thread that runs a product: the main one, and the autograd engine's.
PRODUCT_THREADS = 2


class NoBudgetError(ValueError):
    """No GPU to recommend for; one line for the user."""


class RecommendationArguments(argparse.Namespace):
    """The parsed options."""

    def budgets(self, profile: TrainingProfile) -> list[Budget]:
        """Of the named cards and sizes; where none is named, of the GPU that the profile was made on.

        Raises NoBudgetError.
        """
        found = [self._of_card(gpu, profile) for gpu in self.gpu]
        found += [self._of_size(text, size, profile) for text, size in self.gpu_memory]
        if found:
            return found
        if profile.gpu is None:
            raise NoBudgetError(
                f'{profile.file} was made without a GPU: say which one: --gpu "RTX 3090", or --gpu-memory 24GiB'
            )
        recorded = profile.gpu
        capability = recorded.get("compute_capability")
        return [self._budget(recorded["name"], recorded["total_bytes"], capability, profile, here=True)]

    def _of_card(self, gpu: Gpu, profile: TrainingProfile) -> Budget:
        return self._budget(gpu.name, gpu.total_bytes, gpu.compute_capability, profile)

    def _of_size(self, text: str, size: int, profile: TrainingProfile) -> Budget:
        return self._budget(f"{text} GPU", size, None, profile)

    def _budget(
        self,
        name: str,
        total_bytes: int,
        capability: str | None,
        profile: TrainingProfile,
        here: bool = False,
    ) -> Budget:
        model = profile.memory_model
        version = profile.torch_version if model is None else model["torch_version"]
        backend = "rocm" if (capability or "").startswith("gfx") else "cuda"
        libraries = workspaces_for(version, capability, backend)
        return Budget(
            name=name,
            total_bytes=total_bytes,
            reserved_elsewhere_bytes=self.reserved,
            headroom_share=self.headroom,
            context_bytes=libraries.context_bytes,
            workspace_bytes=PRODUCT_THREADS * libraries.cublas_bytes + libraries.cublaslt_bytes,
            bf16_hardware=has_bf16(capability),
            is_this_machine=here,
        )


def gpu_name(text: str) -> Gpu:
    """A card by name; for `type=`."""
    try:
        return find_gpu(text)
    except GpuNameError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory_size(text: str) -> int:
    """Bytes of "24GiB"; for `type=`."""
    try:
        return parse_bytes(text)
    except MemorySizeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def gpu_memory(text: str) -> tuple[str, int]:
    """("24GiB", its bytes), above zero; for `type=`."""
    size = memory_size(text)
    if not size:
        raise argparse.ArgumentTypeError(f'"{text}": a GPU has memory')
    return text.strip(), size


def headroom(text: str) -> Fraction:
    """Share of "10%" or "0.1", exact; for `type=`."""
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,9})?)\s*(%?)\s*", text)
    share = Fraction(match.group(1)) / (100 if match.group(2) else 1) if match else Fraction(1)
    if not share < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a share below 100 %, such as 10% or 0.1")
    return share


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """The options that describe GPUs; shared by every command that recommends for one."""
    add = parser.add_argument
    add("--gpu", type=gpu_name, action="append", default=[], metavar="NAME", help=(
        'a GPU by name, such as "RTX 3090"; may be repeated (--list-gpus lists them)'
    ))  # fmt: skip
    add("--gpu-memory", type=gpu_memory, action="append", default=[], metavar="SIZE", help=(
        f"a GPU by its memory as CUDA reports it, such as 24GiB ({MEMORY_HELP}); may be repeated"
    ))  # fmt: skip
    add("--reserved", type=memory_size, default=0, metavar="SIZE", help=(
        f"memory of it that others take, such as 1GiB for a desktop ({MEMORY_HELP}; default 0)"
    ))  # fmt: skip
    add("--headroom", type=headroom, default=DEFAULT_HEADROOM, metavar="SHARE", help=(
        f"share of the rest that stays free (default {float(DEFAULT_HEADROOM):.0%}%)"
    ))  # fmt: skip
    add("--target-batch", type=positive_int, metavar="N", help=(
        "global batch of one optimizer step, reached by accumulation (default: the config's accumulation)"
    ))  # fmt: skip
    add("--devices", type=positive_int, default=1, metavar="N", help="GPUs that train together (default 1)")


def parse_recommendation_arguments(arguments: Sequence[str]) -> RecommendationArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="recommend_batch_size.py",
        description="Recommend a training batch size from a saved profile, without measuring.",
    )
    add = parser.add_argument
    add("profile", nargs="?", metavar="PROFILE.json", help="written by profile_model.py")
    add_budget_options(parser)
    add("--training-samples", type=positive_int, metavar="N", help=(
        "samples of one epoch, for its time where training steps were measured"
    ))  # fmt: skip
    add("--write", metavar="CONFIG", help=(
        "set data.batch_size and training.accumulate in this config file, for the one GPU named"
    ))  # fmt: skip
    add("--list-gpus", action="store_true", help="list the GPUs that --gpu knows and exit")
    parsed = parser.parse_args(arguments, namespace=RecommendationArguments())
    if parsed.profile is None and not parsed.list_gpus:
        parser.error("which profile? For example results/profile_results.json")
    if parsed.write is not None and len(parsed.gpu) + len(parsed.gpu_memory) > 1:
        parser.error("--write: one config takes one batch size: name one GPU")
    return parsed
