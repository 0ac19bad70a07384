"""The machine and software of a profile, for people."""

from __future__ import annotations

from swinmr_profiling.profiler.record.blocks.run_description import Environment
from swinmr_profiling.profiler.record.units import GIB, MIB


def hardware_of(environment: Environment | None, device: str | None) -> str:
    if device is not None and device.startswith("cuda"):
        gpu = None if environment is None else environment.gpu
        return "a GPU of unknown name" if gpu is None else gpu.name
    return "a processor of unknown name" if environment is None else environment.cpu.name


def environment_rows(environment: Environment | None) -> tuple[tuple[str, str], ...]:
    if environment is None:
        return ()
    cpu, gpu, git = environment.cpu, environment.gpu, environment.git
    rows: list[tuple[str, str | None]] = [
        ("processor", cpu.name),
        ("cores in use, threads", f"{cpu.usable_cores}, {cpu.threads}"),
        ("host memory", f"{environment.memory_total_bytes / GIB:,.2f} GiB"),
    ]
    if gpu is None:
        rows.append(("GPU", "none"))
    else:
        cudnn = None if gpu.cudnn is None else str(gpu.cudnn)
        rows += [
            ("GPU", f"{gpu.name}, {gpu.total_bytes / MIB:,.0f} MiB"),
            ("driver", gpu.driver),
            ("cuda", gpu.cuda),
            ("cudnn", cudnn),
        ]
    rows += [
        ("python", environment.python),
        ("platform", environment.platform),
        ("float32_matmul_precision", environment.float32_matmul_precision),
        *environment.packages.items(),
    ]
    if git is not None:
        rows.append(("commit", f"{git.commit}{' with local changes' if git.dirty else ''}"))
    rows += [("command", environment.command_line), ("measured at (UTC)", environment.time_utc)]
    return tuple((name, value) for name, value in rows if value is not None)
