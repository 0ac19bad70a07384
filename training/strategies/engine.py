"""How a network, its optimizer and its average are spread over processes: by torch's engines, none of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.configs.sections.training import OptimizerSection, TrainingSection
from swinmr_profiling.training.errors import StrategyError
from swinmr_profiling.training.step.optimizers import build_optimizer
from swinmr_profiling.training.step.training_step import autocast_dtype

# What torch was seen to build its buckets and shards with: other versions are told to be untested.
TESTED_TORCH = ("2.9", "2.14")
# Optimizers whose update of a parameter needs that parameter alone, which is what a shard of it has.
ELEMENTWISE = ("adam", "adamw", "sgd")
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, None: None}


@dataclass(frozen=True)
class Engine:
    """The strategy of the `training` section between `size` processes; of one process: nothing is spread.

    device: of this process, where shards are made. on_unit: called with each unit before its parameters are sharded.
    """

    training: TrainingSection
    size: int
    device: torch.device
    on_unit: Callable[[nn.Module], None] = lambda unit: None

    @property
    def shards_parameters(self) -> bool:
        """Whether a process holds a part of each parameter alone. A single one does not need to."""
        return self.training.strategy == "fsdp" and self.size > 1

    @property
    def offloads(self) -> bool:
        """Whether that part is on the host, with its gradient and states."""
        return self.shards_parameters and self.training.fsdp.offload_to_cpu

    @property
    def shards_states(self) -> bool:
        """Whether a process holds a part of the optimizer's states alone."""
        return self.training.strategy in ("zero1", "fsdp") and self.size > 1

    def shard(self, network: nn.Module) -> nn.Module:
        """The network, its parameters sharded in place under FSDP2; each unit's go to the device as it is sharded."""
        if not self.shards_parameters:
            return network
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import (
            CPUOffloadPolicy,
            MixedPrecisionPolicy,
            OffloadPolicy,
            fully_shard,
        )

        mesh_kind = "cpu" if self.device.type == "meta" else self.device.type
        options: dict[str, Any] = {
            "mesh": init_device_mesh(mesh_kind, (self.size,)),
            "reshard_after_forward": self.training.fsdp.reshard_after_forward,
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=DTYPES[self.training.fsdp.param_dtype],
                reduce_dtype=DTYPES[self.training.fsdp.reduce_dtype],
            ),
            # Memory is pinned for a GPU's sake.
            "offload_policy": CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
            if self.offloads
            else OffloadPolicy(),
        }
        for unit in sharding_units(network):
            self.on_unit(unit)
            fully_shard(unit, **options)
        self.on_unit(network)
        # The root's own parameters are needed again at once, which is torch's default for it, too.
        fully_shard(network, **{**options, "reshard_after_forward": False})
        return network

    def optimizer(
        self, parameters: Iterable[nn.Parameter], section: OptimizerSection
    ) -> torch.optim.Optimizer:
        """The optimizer of the section; under ZeRO-1 each process keeps the states of its part of the parameters."""
        if self.training.strategy != "zero1" or self.size == 1:
            return build_optimizer(parameters, section)
        from torch.distributed.optim import ZeroRedundancyOptimizer

        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # Called as the class would be, with the groups.
        of_groups = cast("type[torch.optim.Optimizer]", _OfGroups(section))
        return ZeroRedundancyOptimizer(trained, optimizer_class=of_groups, lr=section.lr)

    def wrap(self, network: nn.Module) -> nn.Module:
        """DistributedDataParallel, which averages whole gradients, for the strategies that have them."""
        if self.size == 1 or self.shards_parameters:
            return network
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(
            network,
            device_ids=ids,
            bucket_cap_mb=self.training.ddp.bucket_cap_mib,
            gradient_as_bucket_view=self.training.ddp.gradient_as_bucket_view,
            static_graph=self.training.ddp.static_graph,
            find_unused_parameters=self.training.ddp.find_unused_parameters,
        )


class _OfGroups:
    """What ZeroRedundancyOptimizer takes for the optimizer's class: called with groups of this rank's parameters."""

    def __init__(self, section: OptimizerSection) -> None:
        self.section = section

    def __call__(self, groups: list[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        return build_optimizer([p for group in groups for p in group["params"]], self.section)


def build_engine(
    config: ExperimentConfig,
    size: int,
    device: torch.device,
    on_unit: Callable[[nn.Module], None] = lambda unit: None,
) -> Engine:
    """The engine of a config between `size` processes. Raises StrategyError for what does not go together."""
    _refuse(config, size, device)
    return Engine(config.training, size, device, on_unit)


def _refuse(config: ExperimentConfig, size: int, device: torch.device) -> None:
    strategy = config.training.strategy
    if size > 1 and config.training.step is not None:
        raise StrategyError(f"training.step {config.training.step}: is trained on one device, not on {size}")
    if strategy == "ddp" or size == 1:
        return
    kind, shards = config.training.optimizer.type, strategy == "fsdp"
    for is_refused, text in (
        (kind not in ELEMENTWISE, f'takes the optimizers {", ".join(ELEMENTWISE)}, not "{kind}"'),
        (
            shards and autocast_dtype(config, device.type) is torch.float16,
            'takes no fp16, whose scale is found from whole gradients: set system.mixed_precision to "bf16"',
        ),
        (
            shards and config.system.channels_last,
            "takes contiguous parameters: set system.channels_last to false",
        ),
        (shards and config.system.compile, "is not tried with system.compile: set it to false"),
    ):
        if is_refused:
            raise StrategyError(f'training.strategy "{strategy}" {text}')


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that may be sharded, put together; every process must ask."""
    return getattr(tensor, "full_tensor", lambda: tensor)()


def own(tensor: torch.Tensor) -> torch.Tensor:
    """Of a tensor that may be sharded the part that this process has."""
    return getattr(tensor, "to_local", lambda: tensor)()


def sharding_units(network: nn.Module) -> list[nn.Module]:
    """The outermost repeated blocks, in the network's order; what is in none of them belongs to the network itself.

    Repeated: the entries of an nn.ModuleList (lists in lists are looked through), and of an nn.Sequential whose entries
    are several of one class. These have a forward pass of their own, which is where FSDP2 gathers. Modules without
    parameters, and those that occur twice, are none.
    """
    found: dict[int, nn.Module] = {}
    for unit in _entries(network) if _is_repetition(network) else _repeated(network):
        if any(True for _ in unit.parameters()):
            found.setdefault(id(unit), unit)
    return list(found.values())


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.ModuleList) or _is_repetition(child):
            yield from _entries(child)
        else:
            yield from _repeated(child)


def _is_repetition(module: nn.Module) -> bool:
    kinds = {type(child) for child in module.children()}
    return type(module) is nn.Sequential and len(module) > 1 and len(kinds) == 1


def _entries(container: nn.Module) -> Iterator[nn.Module]:
    for child in container.children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from _entries(child)
        elif type(child).forward is nn.Module.forward:  # whose parts are called one by one
            yield from _repeated(child)
        else:
            yield child
