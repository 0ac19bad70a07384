"""The other process of cross_check: a request as JSON on standard input, one record as JSON on standard output.

Started by ``cross_check.py``, in the user's working directory. Standard output is kept for the
answer; whatever the model's code or a counter prints goes to standard error.
"""

import contextlib
import json
import sys
from typing import Any

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.models.inputs import Purpose
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.counting.other_counters.explain import cross_check_module

WHICH_INPUTS: dict[str, Purpose] = {"small": "cross_check", "full": "inference"}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The CrossCheck, as a dict, for {"config", "counter", "size", "trust_config"}."""
    built = build_model(config_from_dict(request["config"]), trust_config=request["trust_config"])
    inputs = built.example_inputs(1, which=WHICH_INPUTS[request["size"]])
    check = cross_check_module(built.module.eval(), inputs, request["counter"], request["size"])
    return check.to_json()


def main() -> int:
    replace_unknown_characters()
    with contextlib.redirect_stdout(sys.stderr):
        record = answer(json.load(sys.stdin))
    print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
