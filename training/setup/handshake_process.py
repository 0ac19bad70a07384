"""Two processes that find each other and add two numbers: what torchrun and DistributedDataParallel rest on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from datetime import timedelta

from swinmr_profiling.process import python_command

RANKS = 2


class HandshakeError(Exception):
    """The processes did not find each other; one line of why."""


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def shake_hands(timeout_s: float) -> float:
    """Starts two ranks with gloo on this machine; returns the seconds until both were done.

    Raises HandshakeError.
    """
    started = time.monotonic()
    common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            python_command("swinmr_profiling.training.setup.handshake_process", str(timeout_s)),
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        for rank in range(RANKS)
    ]
    try:
        for rank, process in enumerate(ranks):
            left = timeout_s - (time.monotonic() - started)
            try:
                _, err = process.communicate(timeout=max(left, 0.1))
            except subprocess.TimeoutExpired:
                raise HandshakeError(f"rank {rank} gave no sign within {timeout_s:g} s") from None
            if process.returncode != 0:
                last = err.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
                raise HandshakeError(f"rank {rank}: {last[0]}")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
    return time.monotonic() - started


def main() -> None:
    """Entry of a rank: joins the group and adds (1 + 2 is 3 in both)."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
    value = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(value)
    dist.destroy_process_group()
    if value.item() != RANKS * (RANKS + 1) // 2:
        raise SystemExit(f"the sum over ranks is {value.item()}")
