"""Optimizers and learning-rate schedules of the config; every count is in optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from swinmr_profiling.configs.sections.training import OptimizerSection, SchedulerSection
from swinmr_profiling.training.step.optimizers import (
    build_adafactor,
    build_adam,
    build_muon,
    build_quantized_adam,
)


def build_optimizer(parameters: Iterable[nn.Parameter], section: OptimizerSection) -> torch.optim.Optimizer:
    """The optimizer over the parameters that require gradients. Raises OptimizerError."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if section.type == "sgd":
        return torch.optim.SGD(
            trained, lr=section.lr, momentum=section.momentum, weight_decay=section.weight_decay
        )
    if section.type == "adafactor":
        return build_adafactor(trained, section)
    if section.type == "muon":
        return build_muon(trained, section)
    if section.type in ("adam_8bit", "adamw_8bit"):
        return build_quantized_adam(trained, section)
    return build_adam(torch.optim.AdamW if section.type == "adamw" else torch.optim.Adam, trained, section)


def learning_rate_factor(step: int, section: SchedulerSection, total_steps: int, base_lr: float) -> float:
    """Learning rate of optimizer step `step` (from 0) over the base rate.

    A linear rise over `warmup_steps` (step 0 takes 1 / warmup_steps, never 0), then "multistep":
    gamma^(milestones passed), or "cosine": from 1 to min_lr / lr over the steps that are left
    (Loshchilov and Hutter 2017, eq. 5, one period).
    """
    if step < section.warmup_steps:
        return (step + 1) / section.warmup_steps
    if section.type == "multistep":
        return section.gamma ** sum(step >= milestone for milestone in section.milestones)
    if section.type == "cosine":
        progress = min((step - section.warmup_steps) / max(total_steps - section.warmup_steps, 1), 1.0)
        lowest = section.min_lr / base_lr
        return lowest + (1 - lowest) * (1 + math.cos(math.pi * progress)) / 2
    return 1.0


def build_scheduler(
    optimizer: torch.optim.Optimizer, section: SchedulerSection, total_steps: int
) -> LambdaLR:
    """The schedule, stepped once per optimizer step."""
    base_lr = optimizer.param_groups[0]["lr"]
    return LambdaLR(optimizer, lambda step: learning_rate_factor(step, section, total_steps, base_lr))
