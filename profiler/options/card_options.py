"""The options of a command that answers for one config on one card, and writes its answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from swinmr_profiling.configs import LoadedConfig
from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, distinct, reason
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.batch_size.budget import Budget, budget_on
from swinmr_profiling.profiler.batch_size.gpus import MEMORY_HELP, Gpu
from swinmr_profiling.profiler.options.budget_options import BUDGET, Card, gpu_memory, gpu_name, memory_size
from swinmr_profiling.profiler.options.config_option import config_told_of
from swinmr_profiling.profiler.options.option_types import Options, add_options


class CardArguments(argparse.Namespace):
    """What was asked for."""

    config: Path
    gpu: Gpu | None
    gpu_memory: tuple[str, int] | None
    reserved: int
    headroom: Fraction
    output: Path | None
    allow_unknown: bool
    trust_config: bool
    verbose: bool

    @property
    def card(self) -> Card | None:
        """The one that was named, by name or by memory."""
        if self.gpu is not None:
            return Card.of(self.gpu)
        return None if self.gpu_memory is None else Card(f"{self.gpu_memory[0]} GPU", self.gpu_memory[1])

    def budget(self, card: Card, torch_version: str) -> Budget:
        """What of its memory may be taken. Raises WorkspaceTableError."""
        return budget_on(
            *card,
            torch_version=torch_version,
            reserved_elsewhere_bytes=self.reserved,
            headroom_share=self.headroom,
        )

    def read_config(self) -> LoadedConfig:
        """The config, once it is known that the answer can be written. Raises ConfigError, OutputError."""
        loaded = config_told_of(self)
        if self.output is not None:
            distinct([("--output", self.output)], [("--config", self.config)])
            check_writable(self.output, "--output")
        return loaded

    def write(self, write: Callable[[Path], None]) -> Path | None:
        """The answer into --output, which is returned where it was named. Raises OutputError."""
        if self.output is not None:
            try:
                write(self.output)
            except OSError as error:
                raise OutputError(f"--output: {self.output} {reason(error)}") from None
        return self.output

    def tell(self, event: str) -> None:
        """What happens on the way, for --verbose."""
        if self.verbose:
            complain(event)


def add_named_card(card: argparse._ActionsContainer) -> None:
    """--gpu and --gpu-memory, into a group of which one is given."""
    gpu = dict(type=gpu_name, metavar="NAME", help='a GPU by name, as "RTX 3060 12GB"')
    memory = dict(
        type=gpu_memory, metavar="SIZE", help=f"a GPU by its memory as CUDA reports it ({MEMORY_HELP})"
    )
    add_options(card, {"--gpu": gpu, "--gpu-memory": memory})


def add_share_of_card(parser: argparse.ArgumentParser) -> None:
    """--reserved and --headroom."""
    reserved = dict(type=memory_size, default=0, metavar="SIZE", help="memory of it that others take")
    add_options(parser, {"--reserved": reserved, "--headroom": BUDGET["--headroom"]})


def add_answer_options(parser: argparse.ArgumentParser, *, output: str, verbose: str) -> None:
    """--output, what may be in the config, and --verbose; output, verbose: their help."""
    options: Options = {
        "--output": dict(type=Path, metavar="FILE", help=output),
        "--allow-unknown": dict(action="store_true", help="unknown keys are warnings"),
        "--trust-config": dict(action="store_true", help="let the config import your own class"),
        "--verbose": dict(action="store_true", help=verbose),
    }
    add_options(parser, options)
