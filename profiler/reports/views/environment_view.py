"""The machine and software of a profile, for people."""

from __future__ import annotations

from swinmr_profiling.profiler.record.fields import Fields, printable


def hardware_of(environment: Fields, device: str | None) -> str:
    gpu, cpu = environment.block("gpu"), environment.block("cpu")
    if device is not None and device.startswith("cuda"):
        return (gpu.text("name") if gpu is not None else None) or "a GPU of unknown name"
    return (cpu.text("name") if cpu is not None else None) or "a processor of unknown name"


def environment_rows(environment: Fields) -> tuple[tuple[str, str], ...]:
    rows: list[tuple[str, str | None]] = []
    cpu, gpu, git = environment.block("cpu"), environment.block("gpu"), environment.block("git")
    if cpu is not None:
        rows.append(("processor", cpu.text("name")))
        rows.append(("cores in use, threads", f"{cpu.integer('usable_cores')}, {cpu.integer('threads')}"))
    memory = environment.integer("memory_total_bytes")
    rows.append(("host memory", None if memory is None else f"{memory / 2**30:,.2f} GiB"))
    if gpu is not None:
        total = gpu.integer("total_bytes")
        size = "" if total is None else f", {total / 2**20:,.0f} MiB"
        rows.append(("GPU", f"{gpu.text('name')}{size}"))
        for name in ("driver", "cuda", "cudnn"):
            value = gpu.raw(name)
            rows.append((name, None if value is None else printable(str(value))[:60]))
    elif "cpu" in environment:
        rows.append(("GPU", "none"))
    rows += [(name, environment.text(name)) for name in ("python", "platform", "float32_matmul_precision")]
    packages = environment.block("packages")
    if packages is not None:
        names = [name for name in packages.keys() if name in packages]  # noqa: SIM118
        rows += [(printable(name), packages.text(name)) for name in names]
    if git is not None:
        state = " with local changes" if git.flag("dirty") else ""
        rows.append(("commit", f"{git.text('commit')}{state}"))
    rows += [
        ("command", environment.text("command_line")),
        ("measured at (UTC)", environment.text("time_utc")),
    ]
    return tuple((name, value) for name, value in rows if value is not None)
