"""What several processes tell each other."""

import torch

from swinmr_profiling.training import distributed
from swinmr_profiling.training.distributed import World


def test_a_logged_loss_is_the_mean_over_processes(monkeypatch):
    """Two processes with losses of 1 and 4: both log 2.5."""
    others = torch.tensor([4.0, 0.5])
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda tensor: tensor.add_(others.to(tensor.dtype)))
    world = World(0, 2, torch.device("cpu"))
    assert world.means({"loss": 1.0, "spatial": 0.25}) == {"loss": 2.5, "spatial": 0.375}


def test_a_single_process_has_its_own():
    assert World(0, 1, torch.device("cpu")).means({"loss": 0.1}) == {"loss": 0.1}
