"""Copied beside the configs of the rows: two convolutions, and a GPU that is lost from a moment on.

Where the file named by FAULT_GPU exists, a forward ends as CUDA's calls do once a card has fallen off the bus.
"""

import os
from pathlib import Path

import torch


class Network(torch.nn.Module):
    """(N, 1, H, W) to (N, 1, H, W)."""

    def __init__(self, width=8):
        super().__init__()
        self.first = torch.nn.Conv2d(1, width, 3, padding=1)
        self.last = torch.nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x):
        lost = os.environ.get("FAULT_GPU")
        if lost and Path(lost).exists():
            Path(lost).with_suffix(".raised").touch()
            raise RuntimeError("CUDA error: unspecified launch failure")
        return self.last(self.first(x).relu())
