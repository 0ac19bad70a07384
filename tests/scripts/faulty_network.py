"""A network that fails in the way and at the moment its arguments say; the tests put it beside a config."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

BATCH_OF_FAULT = 4


def out_of_memory():
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.69 GiB"
    )


def host_allocation():
    torch.empty(2**60, dtype=torch.uint8)


def memory_error():
    raise MemoryError


def cublas_allocation():
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def cudnn_allocation():
    raise RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")


def kernel_launch():
    raise RuntimeError("CUDA error: invalid configuration argument")


def int32_index():
    raise RuntimeError("nonzero is not supported for tensors with more than INT_MAX elements")


def sticky_error():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def shape_error():
    torch.ones(2, 3) @ torch.ones(2, 3)


def own_error():
    raise KeyError("scale")


def recursion():
    recursion()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def kernel_kill():
    """A kill with the kernel's counter raised, as when the kernel does it."""
    file = Path(os.environ["VMSTAT_FILE"])
    file.write_text("oom_kill 8\n")
    kill()


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def segmentation_fault():
    ctypes.string_at(0)


def abort():
    os.abort()


def leave():
    os._exit(3)


def system_exit():
    sys.exit(7)


def interrupt_inside():
    raise KeyboardInterrupt


def hang():
    time.sleep(600)


def hang_with_a_child():
    subprocess.run(["sleep", "600"], check=False)


def in_later_process():
    """Whether another process has run the batch of the fault before."""
    first = Path(__file__).with_name("first_process")
    if not first.exists():
        first.write_text(str(os.getpid()))
    return first.read_text() != str(os.getpid())


def kill_later():
    if in_later_process():
        kill()


def hang_later():
    if in_later_process():
        Path(__file__).with_name("hangs").touch()
        hang()


def not_a_number():
    return float("nan")


class Faulty(torch.nn.Module):
    """Returns its input, but for the fault: at a batch of 4 (or at `batch`), or at an earlier moment."""

    def __init__(self, fault=None, moment="batch", batch=BATCH_OF_FAULT):
        super().__init__()
        self.fault = fault
        self.moment = moment
        self.batch = batch
        self.scale = torch.nn.Identity()
        if moment == "build":
            globals()[fault]()

    def forward(self, x):
        if self.moment == "count":
            if x.device.type == "meta":
                globals()[self.fault]()
        elif self.moment == "batch" and self.fault and x.shape[0] == self.batch and x.device.type != "meta":
            factor = globals()[self.fault]()
            if factor is not None:
                x = x * factor
        return self.scale(x)
