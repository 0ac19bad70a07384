"""Checks before a training: what each finds, which need which, and how they are run one after another.

Imports no package but the standard library, so that a missing package is a finding and not a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from swinmr_profiling.input_error import InputError

if TYPE_CHECKING:
    import torch

    from swinmr_profiling.configs import ExperimentConfig, LoadedConfig
    from swinmr_profiling.models.inputs import BuiltModel
    from swinmr_profiling.training.volumes import Volume

Status = Literal["ok", "warning", "failed", "not run"]
MEBIBYTE, GIBIBYTE = 2**20, 2**30


@dataclass(frozen=True)
class Finding:
    """One line of a report. `advice` says what to do, None where nothing is to be done."""

    check: str
    status: Status
    detail: str
    advice: str | None = None

    def line(self) -> str:
        """The finding for a terminal."""
        advice = "" if self.advice is None else f" -> {self.advice}"
        return f"{self.status:8} {self.check:16} {self.detail}{advice}"


@dataclass
class SetupContext:
    """What is to be checked, and what earlier checks found that later ones use.

    Attributes:
        config_file, allow_unknown, trust_config, device_name: as on the command line.
        available_bytes: host memory that can still be taken.
        predict_step_bytes: of the context, what one training step of one sample takes on its CUDA device.
        as_trained: of the context, the config with its plan and its budget for checkpointing carried out, and lines
            that say so; raises ValueError.
        timeout_s: for each check that starts a process.
        loaded, device, built, volumes: None (empty) until the check that finds them has run.
    """

    config_file: str
    available_bytes: Callable[[], int]
    predict_step_bytes: Callable[[SetupContext], int]
    as_trained: Callable[[SetupContext], tuple[ExperimentConfig, list[str]]] | None = None
    device_name: str = "auto"
    allow_unknown: bool = False
    trust_config: bool = False
    timeout_s: float = 300.0
    loaded: LoadedConfig | None = None
    device: torch.device | None = None
    built: BuiltModel | None = None
    volumes: dict[str, list[Volume]] = field(default_factory=dict)

    @property
    def config(self) -> ExperimentConfig:
        """The config; the check named "config" must have passed."""
        assert self.loaded is not None
        return self.loaded.config


@dataclass(frozen=True)
class Check:
    """A check by its name. It runs only when what it `needs` has run and not failed.

    advice: what to do about an InputError that ends the check; without it such an error is unexpected.
    """

    name: str
    run: Callable[[SetupContext], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    advice: str | None = None


def ok(check: str, detail: str) -> Finding:
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, "warning", detail, advice)


def failed(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, "failed", detail, advice)


def run_checks(
    checks: Sequence[Check],
    context: SetupContext,
    skip: Collection[str] = (),
    on_finding: Callable[[Finding], object] = lambda finding: None,
) -> list[Finding]:
    """Runs checks in order; one that fails, or is in `skip`, stops only those that need it."""
    findings: list[Finding] = []
    stopped: set[str] = set()
    for check in checks:
        missing = [name for name in check.needs if name in stopped]
        if check.name in skip:
            found = [Finding(check.name, "not run", "left out (--skip)")]
        elif missing:
            found = [
                Finding(check.name, "not run", f"needs {', '.join(missing)}, which failed or did not run")
            ]
        else:
            found = _findings_of(check, context)
        if any(finding.status in ("failed", "not run") for finding in found):
            stopped.add(check.name)
        for finding in found:
            on_finding(finding)
        findings += found
    return findings


def _findings_of(check: Check, context: SetupContext) -> list[Finding]:
    try:
        return list(check.run(context))
    except Exception as error:  # a check that breaks is told, and must not hide the others
        if check.advice is not None and isinstance(error, InputError):
            return [failed(check.name, str(error), check.advice)]
        text = " ".join(str(error).split()) or "without a word"
        advice = "this is a fault of the check or the installation: please report it"
        return [failed(check.name, f"unexpected {type(error).__name__}: {text}", advice)]


def overall(findings: Sequence[Finding]) -> Status:
    """The worst status: "failed", "warning" or "ok"."""
    statuses = {finding.status for finding in findings}
    return "failed" if "failed" in statuses else "warning" if "warning" in statuses else "ok"


def readable(size_bytes: float) -> str:
    """Bytes in GiB or MiB, for messages."""
    if size_bytes < GIBIBYTE:
        return f"{size_bytes / MEBIBYTE:.1f} MiB"
    return f"{size_bytes / GIBIBYTE:.2f} GiB"
