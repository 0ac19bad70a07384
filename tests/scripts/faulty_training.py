"""A network that infers at any batch, and fails in training at a batch of 4 in the way its argument says."""

import torch

BATCH_OF_FAULT = 4


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def shape_error():
    torch.ones(2, 3) @ torch.ones(2, 3)


def segmentation_fault():
    import ctypes

    ctypes.string_at(0)


class Faulty(torch.nn.Module):
    """One convolution. `step`: the training forward in which it fails, from 1."""

    def __init__(self, fault=None, step=1):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 3, padding=1)
        self.fault, self.step, self.count = fault, step, 0

    def forward(self, x):
        if self.training and x.device.type != "meta" and x.shape[0] == BATCH_OF_FAULT:
            self.count += 1
            if self.fault is not None and self.count == self.step:
                globals()[self.fault]()
        return self.layer(x)
