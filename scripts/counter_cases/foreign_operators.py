"""Cases of complex, integer, threaded and scripted work with MACs derived by hand, by what is foreign in them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.scripts.counter_cases.case_modules import Call, Case, call, case, layer, randn

C64 = torch.complex64


def complex_numbers(*shape: int) -> torch.Tensor:
    return randn(*shape, dtype=C64)


def whole_numbers(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


class InAPool(nn.Module):
    """Each branch of a list in a thread of a pool."""

    def __init__(self, pool: type, branches: int):
        super().__init__()
        self.pool = pool
        self.branches = nn.ModuleList(nn.Linear(16, 8) for _ in range(branches))

    def forward(self, x):
        with self.pool(2) as pool:
            return sum(pool.map(lambda branch: branch(x), self.branches))


class InThreads(nn.Module):
    """Two convolutions, each in a thread of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 1)

    def forward(self, x):
        results = [None, None]

        def run(place, layer):
            results[place] = layer(x)

        threads = [threading.Thread(target=run, args=pair) for pair in enumerate((self.first, self.second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results[0] + results[1]


class Loop(nn.Module):
    """A loop that a script keeps: three times through one layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.layer(x).relu()
        return x


class Forks(nn.Module):
    """Two products at once."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.jit.fork(torch.mm, x, self.weight)
        return torch.mm(x, self.weight) + torch.jit.wait(first)


def small_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 5)).eval()


# 64 places of 4 x 2 x 9, then 256 x 5.
SMALL_NETWORK = 64 * 4 * 2 * 9 + 256 * 5

FOREIGN: dict[str, tuple[Case, ...]] = {
    "complex": (
        case(
            "Linear, complex",
            4 * 5 * 16 * 8,
            lambda: nn.Linear(16, 8, dtype=C64),
            lambda: complex_numbers(5, 16),
        ),
        case(
            "Conv2d, complex",
            4 * 64 * 4 * 2 * 9,
            lambda: nn.Conv2d(2, 4, 3, padding=1, dtype=C64),
            lambda: complex_numbers(1, 2, 8, 8),
        ),
        call("bmm, complex", 4 * 2 * 3 * 4 * 5, "torch.bmm", (2, 3, 4), (2, 4, 5), dtype=C64),
        # Hermitian products of 16 coils at 64 places: 16 x 16 over 64, complex.
        call("coil covariance", 4 * 16 * 16 * 64, lambda x: x @ x.mH, (16, 64), dtype=C64),
        call(
            "DFT matrix",
            4 * 16 * 16 * 12,
            lambda x: torch.fft.fft(torch.eye(16, device=x.device)) @ x,
            (16, 12),
            dtype=C64,
        ),
    ),
    "integer": (
        case(
            "matmul of int64",
            2 * 3 * 4 * 5,
            lambda: Call("torch.matmul"),
            lambda: whole_numbers(2, 3, 4),
            lambda: whole_numbers(2, 4, 5),
        ),
        case(
            "conv2d of int64",
            36 * 4 * 2 * 9,
            lambda: Call("torch.nn.functional.conv2d"),
            lambda: whole_numbers(1, 2, 8, 8),
            lambda: whole_numbers(4, 2, 3, 3),
        ),
        case(
            "int8 into int32",
            32 * 16 * 8,
            lambda: Call("torch._int_mm"),
            lambda: whole_numbers(32, 16, dtype=torch.int8),
            lambda: whole_numbers(16, 8, dtype=torch.int8),
        ),
        case(
            "mv of int32",
            3 * 4,
            lambda: Call("torch.mv"),
            lambda: whole_numbers(3, 4, dtype=torch.int32),
            lambda: whole_numbers(4, dtype=torch.int32),
        ),
    ),
    "threaded": (
        layer("executor", 3 * 5 * 16 * 8, lambda: InAPool(ThreadPoolExecutor, 3), (5, 16)),
        layer("thread pool", 3 * 5 * 16 * 8, lambda: InAPool(ThreadPool, 3), (5, 16)),
        layer("threads", 64 * 4 * 2 * 9 + 64 * 4 * 2, InThreads, (1, 2, 8, 8)),
    ),
    "scripted": (
        layer("script", SMALL_NETWORK, lambda: torch.jit.script(small_network()), (1, 2, 8, 8)),
        layer(
            "trace",
            SMALL_NETWORK,
            lambda: torch.jit.trace(small_network(), torch.zeros(1, 2, 8, 8)),
            (1, 2, 8, 8),
        ),
        layer(
            "frozen script",
            SMALL_NETWORK,
            lambda: torch.jit.freeze(torch.jit.script(small_network())),
            (1, 2, 8, 8),
        ),
        layer("loop in a script", 3 * 5 * 8 * 8, lambda: torch.jit.script(Loop()), (5, 8)),
        layer("fork in a script", 2 * 5 * 16 * 8, lambda: torch.jit.script(Forks()), (5, 16)),
        layer(
            "attention in a script",
            2 * 4 * 10 * 7 * 32,
            lambda: torch.jit.trace(
                Call(F.scaled_dot_product_attention),
                (torch.zeros(2, 4, 10, 16), torch.zeros(2, 4, 7, 16), torch.zeros(2, 4, 7, 16)),
            ),
            (2, 4, 10, 16),
            (2, 4, 7, 16),
            (2, 4, 7, 16),
        ),
    ),
}
