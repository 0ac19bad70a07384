"""A network of three equal linear layers, whose memory on a rank can be summed by hand."""

import numpy as np
from torch import nn
from torch.utils.checkpoint import checkpoint

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.inputs import BuiltModel, InputSpec
from swinmr_profiling.profiler.ranks.traced_rank import trace_rank

# Losses and the like; everything else of these networks is larger.
SCALAR_BYTES = 64


def built_of(network, width):
    inputs = (InputSpec((width,)),)
    return BuiltModel("custom", network, dict.fromkeys(("inference", "training", "cross_check"), inputs))


def three_layers(width):
    return built_of(nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(3))), width)


class Pair(nn.Module):
    """Two layers, whose middle activation is kept or computed again."""

    def __init__(self, recomputed, width):
        super().__init__()
        self.recomputed = recomputed
        self.first, self.second = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x):
        return checkpoint(self.computed, x, use_reentrant=False) if self.recomputed else self.computed(x)

    def computed(self, x):
        return self.second(self.first(x))


def three_pairs(recomputed, width):
    return built_of(nn.Sequential(*(Pair(recomputed, width) for _ in range(3))), width)


def recomputed_pairs_of_1024(config):
    """For a process of its own."""
    return three_pairs(True, 1024)


def of_2048(config):
    """For a process of its own."""
    return three_layers(2048)


def config_of(strategy, width=2048, **training):
    model = {"net_type": "custom", "target": "somewhere:ThreeLayers", "input_shapes": [[width]]}
    training = {"ema_decay": 0.0, "loss": {"type": "mse"}, "optimizer": {"type": "adamw"}, **training}
    return config_from_dict(
        {"model": model, "data": {"use_patches": False}, "training": {"strategy": strategy, **training}}
    )


def traced(strategy, size, width=2048, batch_size=8, rank=0, **training):
    return trace_rank(
        three_layers(width),
        config_of(strategy, width, **training),
        batch_size,
        size,
        rank=rank,
        as_on_cuda=False,
        validation=False,
    )


def peak_without_scalars(trace):
    """Most bytes alive at once in the steps, of all that is larger than a scalar."""
    large = np.where(trace.sizes > SCALAR_BYTES, trace.sizes, 0)
    sizes = large[np.abs(trace.events) - 1]
    live = np.cumsum(np.where(trace.events > 0, sizes, -sizes))
    return int(live[trace.step_starts[0] :].max())
