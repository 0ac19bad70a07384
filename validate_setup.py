#!/usr/bin/env python3
"""Checks that a config can be trained here, before hours are spent on it.

    python validate_setup.py --config configs/train_config.json
    python validate_setup.py --config configs/train_config.json --json

One line a check: ok, warning or failed, with what to do. Exit status: 0 nothing failed, 1 a check failed, 2 bad
arguments or config.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs import load_config
from swinmr_profiling.configs.writing.standard_streams import say
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT, EXIT_DONE
from swinmr_profiling.profiler.options.option_types import OneLineParser, device, positive_seconds
from swinmr_profiling.training.setup.setup_checks import Finding, SetupContext, overall, run_checks
from swinmr_profiling.training.setup.setup_suite import CHECKS

EXIT_FAILED = 1  # a check failed


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command."""
    names = [check.name for check in CHECKS]
    parser = OneLineParser(prog="validate_setup.py", description="Check that a config can be trained here.")
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--device", type=device, default="auto", help="auto (default), cpu, cuda, cuda:1")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of lines")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=names,
        metavar="CHECK",
        help=f"one of: {', '.join(names)}",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=300.0,
        metavar="SECONDS",
        help="of a check's process (default 300)",
    )
    parser.add_argument("--allow-unknown", action="store_true", help="unknown keys are warnings")
    parser.add_argument("--trust-config", action="store_true", help="let the config import your own class")
    return parser.parse_args(arguments)


def available_bytes() -> int:
    """Host memory that can still be taken, under the cgroup's limit."""
    from swinmr_profiling.models.host_memory import available_bytes as host_available_bytes

    return host_available_bytes()


def predict_step_bytes(context: SetupContext) -> int:
    """Device memory of one training step of one sample on the context's CUDA device."""
    import torch

    from swinmr_profiling.profiler.prediction.prediction_session import predict_single_step_bytes

    major, minor = torch.cuda.get_device_capability(context.device)
    return predict_single_step_bytes(
        context.config, f"{major}.{minor}", trust_config=context.trust_config, timeout_s=context.timeout_s
    )


def as_trained(context: SetupContext):
    """The config with its plan and its budget carried out, as `train.py` carries them out. Raises ValueError."""
    import torch

    from swinmr_profiling.profiler.plan.budgeted_modules import as_trained

    on_cuda = context.device is not None and context.device.type == "cuda"
    return as_trained(
        context.config,
        trust_config=context.trust_config,
        config_file=context.config_file,
        total_bytes=torch.cuda.mem_get_info(context.device)[1] if on_cuda else None,
    )


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse(arguments)
    if not parsed.json:
        # A config that cannot be read leaves nothing to check.
        load_config(parsed.config, allow_unknown=parsed.allow_unknown)
    context = SetupContext(
        config_file=parsed.config,
        available_bytes=available_bytes,
        predict_step_bytes=predict_step_bytes,
        as_trained=as_trained,
        device_name=parsed.device,
        allow_unknown=parsed.allow_unknown,
        trust_config=parsed.trust_config,
        timeout_s=parsed.timeout,
    )

    def tell(finding: Finding) -> None:
        if not parsed.json:
            say(finding.line())

    findings = run_checks(CHECKS, context, parsed.skip, tell)
    status = overall(findings)
    counts = {
        kind: sum(finding.status == kind for finding in findings) for kind in ("failed", "warning", "not run")
    }
    if parsed.json:
        report = {
            "schema_version": 1,
            "kind": "setup",
            "status": status,
            "config": {"file": parsed.config, "sha256": context.loaded and context.loaded.sha256},
            "counts": counts,
            "checks": [asdict(finding) for finding in findings],
        }
        say(json.dumps(report, indent=2, allow_nan=False))
    else:
        say(f"{status}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    if any(finding.check == "config" and finding.status == "failed" for finding in findings):
        return EXIT_BAD_INPUT
    return EXIT_FAILED if status == "failed" else EXIT_DONE


if __name__ == "__main__":
    swinmr_profiling.command.run(main)
