"""The content of a profile file held against its shape (`profile.Profile`), and the JSON Schema of it.

python -m swinmr_profiling.profiler.record.written_profile > profiler/record/profile.schema.json
"""

from __future__ import annotations

import json

from pydantic import JsonValue, ValidationError

from swinmr_profiling.profiler.record.profile import Profile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# In characters; a key of a damaged file may be of any length.
LONGEST_PLACE = 120


def first_fault(error: ValidationError, whole: str = "the profile") -> str:
    """`batch_profiling.4.timing.mean_ms: ...`, of the block that came nearest where several were possible."""
    faults = error.errors(include_url=False, include_input=False)
    # Of a block that may be one of several kinds it is the kind with the fewest faults, and there the deepest one.
    tried = [_alternative(fault["loc"]) for fault in faults]
    nearest, _ = min(
        zip(faults, tried, strict=True), key=lambda one: (tried.count(one[1]), -len(one[0]["loc"]))
    )
    keys = [str(part) for part in nearest["loc"] if isinstance(part, int) or not _is_alternative(part)]
    place = ".".join(keys)
    if len(place) > LONGEST_PLACE:
        place = f"{place[: LONGEST_PLACE - 3]}..."
    return f"{place or whole}: {nearest['msg'].removeprefix('Value error, ')}"


def _alternative(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Up to the last alternative of a union that was tried."""
    parts = list(location)
    while parts and (isinstance(parts[-1], int) or not _is_alternative(parts[-1])):
        parts.pop()
    return tuple(parts)


def _is_alternative(part: str) -> bool:
    """Beside keys and places in lists, a location names the alternatives by class."""
    return part[:1].isupper() or part.startswith("function-")


def json_schema() -> dict[str, JsonValue]:
    """The JSON Schema of a profile file."""
    return {"$schema": DIALECT, **Profile.model_json_schema(by_alias=True)}


def main() -> None:
    print(json.dumps(json_schema(), indent=1))


if __name__ == "__main__":
    main()
