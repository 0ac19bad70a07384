"""Profiles read back from files, without trust: another file, an old one, cut short, of the future, made to harm.

Their texts, which anybody may have written, are made fit to be shown.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.record.files.migrations import ProfileShapeError, migrate, version_of
from swinmr_profiling.profiler.record.files.original_script import ORIGINAL_SCRIPT, OriginalProfile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.record.written_profile import first_fault

# Control characters are not valid XML, lone surrogates no valid UTF-8, and the marks that turn the direction of
# writing can make a name look like another.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """The text with what cannot be shown safely replaced by U+FFFD."""
    return UNPRINTABLE.sub("�", text)


MAX_FILE_BYTES = 200 * 2**20


class ProfileFileError(InputError):
    """A file that cannot be used as a profile; one line for the user."""


class MissingProfileError(ProfileFileError):
    """There is no such file."""


@dataclass(frozen=True)
class LoadedProfile:
    """A profile in the present schema version.

    Attributes:
        file: as the user named it.
        version: schema version of the file; 0 is the original script's.
    """

    file: str
    profile: Profile
    version: int

    @property
    def imported(self) -> bool:
        return self.version == ORIGINAL_SCRIPT


def load_profile(path: str | Path) -> LoadedProfile:
    """Reads a profile and brings it to the present schema version. Raises ProfileFileError, MissingProfileError."""
    file = Path(path)
    name = printable(str(path))
    try:
        if file.is_dir():
            raise ProfileFileError(f"{name}: is a folder: name a profile's JSON file")
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise ProfileFileError(f"{name}: is not an ordinary file: copy the profile to one")
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ProfileFileError(f"{name}: larger than {MAX_FILE_BYTES // 2**20} MiB: no profile is")
        return parse_profile(file.read_text(encoding="utf-8"), name)
    except FileNotFoundError:
        raise MissingProfileError(f"{name}: no such file: scripts/profile_model.py writes one") from None
    except OSError as error:
        raise ProfileFileError(f"{name}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ProfileFileError(f"{name}: is not UTF-8 text, so not a profile") from None


def parse_profile(text: str, name: str) -> LoadedProfile:
    """A profile from its JSON text, brought to the present version, checked, typed. Raises ProfileFileError."""
    try:
        content = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ProfileFileError(f"{name}: nested too deeply: no profile is") from None
    except json.JSONDecodeError as error:
        cut = " (truncated?)" if error.pos >= len(text.rstrip()) - 1 and text.strip() else ""
        raise ProfileFileError(f"{name}: is not valid JSON{cut}: {error}") from None
    except ValueError as error:
        raise ProfileFileError(f"{name}: {printable(str(error))[:200]}") from None
    try:
        if not isinstance(content, dict):
            raise ProfileShapeError("is not a profile: a profile is a JSON object")
        version = version_of(content)
        if version == ORIGINAL_SCRIPT:
            return LoadedProfile(name, OriginalProfile.model_validate(content).as_profile(), version)
        return LoadedProfile(name, Profile.model_validate(migrate(content, version)), version)
    except ProfileShapeError as error:
        raise ProfileFileError(f"{name}: {error}") from None
    except ValueError as error:
        fault = printable(first_fault(error) if isinstance(error, ValidationError) else str(error))
        raise ProfileFileError(
            f"{name}: is damaged or of another version ({fault}): scripts/profile_model.py writes it anew"
        ) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"holds {name}, which is not JSON: a profile writes null for what is not known")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"holds {text[:40]}, which is beyond any number of a profile")
    return value
