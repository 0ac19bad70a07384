"""The record of one run: what is known so far of one network on one machine, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from swinmr_profiling.profiler.record.warnings import ProfileWarning

SCHEMA_VERSION = 2


@dataclass
class Profile:
    """What is known so far of one network on one machine. Blocks are JSON values; None is "not known"."""

    config: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    architecture: dict[str, Any] | None = None
    single_image: dict[str, Any] | None = None
    batch_profiling: dict[str, dict[str, Any]] = field(default_factory=dict)
    perceptual_metric: dict[str, Any] | None = None
    memory_model: dict[str, Any] | None = None
    recommendation: dict[str, Any] | None = None
    warnings: list[ProfileWarning] = field(default_factory=list)
    status: str = "partial"
    status_reason: str | None = "the run has not ended"

    def warn(self, warning: ProfileWarning) -> bool:
        """Adds a warning; False when it is there already."""
        if warning in self.warnings:
            return False
        self.warnings.append(warning)
        return True

    def to_json(self) -> dict[str, Any]:
        """The profile JSON, batch sizes in ascending order."""
        ordered = sorted(self.batch_profiling.items(), key=lambda item: int(item[0]))
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "status_reason": self.status_reason,
            "config": self.config,
            "environment": self.environment,
            "architecture": self.architecture,
            "single_image": self.single_image,
            "batch_profiling": dict(ordered),
            "perceptual_metric": self.perceptual_metric,
            "memory_model": self.memory_model,
            "recommendation": self.recommendation,
            "warnings": [warning.to_json() for warning in self.warnings],
        }
