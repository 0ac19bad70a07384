"""The content of a profile file held against its shape (`profile.Profile`), and the JSON Schema of it.

python -m swinmr_profiling.profiler.record.written_profile > profiler/record/profile.schema.json
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from swinmr_profiling.profiler.record.profile import Profile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
WrittenProfile = Profile


def check_written(content: dict[str, Any]) -> Profile:
    """The content of a profile file in the present version, typed. Raises ValueError: its first fault, in one line."""
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        fault = _first_fault(error)
        raise ValueError(fault) from None


def _first_fault(error: ValidationError) -> str:
    """`batch_profiling.4.timing.mean_ms: ...`, of the block that came nearest where several were possible."""
    faults = error.errors(include_url=False, include_input=False)
    deepest = max(faults, key=lambda fault: len(fault["loc"]))
    # Beside keys and places in lists, a location names the alternatives of a union that were tried, by class.
    keys = [str(part) for part in deepest["loc"] if isinstance(part, int) or not _is_alternative(part)]
    place = ".".join(keys)
    return f"{place or 'the profile'}: {deepest['msg'].removeprefix('Value error, ')}"


def _is_alternative(part: str) -> bool:
    return part[:1].isupper() or part.startswith("function-")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a profile file."""
    return {"$schema": DIALECT, **Profile.model_json_schema(by_alias=True)}


def main() -> None:
    print(json.dumps(json_schema(), indent=1))


if __name__ == "__main__":
    main()
