#!/usr/bin/env python3
"""Profiles the network of a JSON config: parameters, MACs, latency and memory per batch size.

    python scripts/profile_model.py --config configs/train_config.json --batch-sizes 1,4,8
    python scripts/profile_model.py --config configs/train_config.json --device cpu

Exit status: 0 done, 2 bad arguments or config, 3 no requested size fits, 4 partial result, 5 a gate of the user's
failed, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from configs import ConfigError, load_config
from profiler.command_line import listed_models, parse_profile_arguments, with_image_size
from profiler.console import Console
from profiler.exit_codes import EXIT_BAD_INPUT, EXIT_DONE
from profiler.gpus import listed_gpus
from profiler.profile_run import run_profile
from profiler.result_file import OutputError, ResultFile
from profiler.resume import ResumeError
from profiler.worker_process import RequestRefusedError


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    parsed = parse_profile_arguments(given)
    if parsed.list_models:
        print(listed_models())
        return EXIT_DONE
    if parsed.list_gpus:
        print(listed_gpus())
        return EXIT_DONE
    try:
        loaded = load_config(parsed.config, allow_unknown=parsed.allow_unknown)
        loaded = with_image_size(loaded, parsed.image_size)
        for message in loaded.messages:
            print(message, file=sys.stderr)
        result = ResultFile(parsed.output)
        result.prepare()
        console = Console(sys.stderr if result.to_standard_output else sys.stdout)
        options = parsed.run_options(loaded.config.system, ["profile_model.py", *given])
        return run_profile(loaded, options, console, result)
    except (ConfigError, OutputError, RequestRefusedError, ResumeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
