"""What makes a training fit: `training.strategy` (`ddp`, `fsdp`) over several processes, `lora`, and `on_host`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.configs.field_types import Count, Expected, Flag, PositiveOrNull, Section

Strategy = Literal["ddp", "zero1", "fsdp"]
OnHost = Literal["ema", "activations", "optimizer_states"]
DtypeOrNull = Annotated[Literal["bf16", "fp32"] | None, Expected('"bf16", "fp32" or null')]


class DdpSection(Section):
    """DistributedDataParallel, under `ddp` and `zero1`."""

    bucket_cap_mib: PositiveOrNull = Field(
        None,
        description="Size at which a bucket of gradients is full. null: torch's 25 MiB, and 1 MiB for the first.",
    )
    gradient_as_bucket_view: Flag = Field(
        False, description="Gradients are parts of the buckets, not tensors beside them."
    )
    static_graph: Flag = Field(False, description="Every step uses the same parameters.")
    find_unused_parameters: Flag = Field(False, description="Look for parameters that a step does not use.")


class FsdpSection(Section):
    """FSDP2 (`fully_shard`), under `fsdp`."""

    reshard_after_forward: Flag = Field(
        True, description="Let a unit's gathered parameters go after its forward pass, and gather them again."
    )
    param_dtype: DtypeOrNull = Field(
        None, description="In which gathered parameters are, and computed with. null: as they are kept."
    )
    reduce_dtype: DtypeOrNull = Field(
        None, description="In which gradients are summed. null: as they are computed."
    )
    offload_to_cpu: Flag = Field(
        False,
        description="Keep shards, their gradients and the optimizer's states on the host, and update them there.",
    )


class LoraSection(Section):
    """Low-rank adapters by peft: the network's own weights are frozen, the adapters are trained."""

    rank: Count = Field(8, description="Rank of the adapters.")
    alpha: PositiveOrNull = Field(None, description="Scale of the adapters, over the rank. null: the rank.")
    targets: Annotated[
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)],
        Expected("list of names of layers, at least one"),
    ] = Field(
        ["qkv", "proj"],
        description="Layers that get an adapter, by the end of their names (`qkv`, `attn.proj`).",
    )
