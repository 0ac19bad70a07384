"""The file of the default `--output` that an earlier run left: kept under a name of its own before it is replaced."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path, PurePath

from swinmr_profiling.configs.writing.atomic_files import replacing


def kept_name(file: Path) -> Path:
    """A free name beside the file, by the config that it is of and the time it was written."""
    stem = file.stem
    try:
        config = json.loads(file.read_text(encoding="utf-8"))["config"]["config_file"]
        stem = f"profile_{PurePath(config).stem}"
    except (ValueError, KeyError, TypeError, RecursionError):
        pass  # no profile, or a damaged one: kept by its own name
    stem = re.sub(r"[^\w.+-]", "_", stem)[:100]
    written = time.strftime("%Y%m%d-%H%M%S", time.localtime(file.stat().st_mtime))
    name, number = file.with_name(f"{stem}_{written}{file.suffix}"), 2
    while name.exists():
        name, number = file.with_name(f"{stem}_{written}_{number}{file.suffix}"), number + 1
    return name


def keep_earlier(file: Path) -> Path | None:
    """Copies what is there; None where nothing is. Raises OSError, and the file is then not to be replaced."""
    if not file.is_file() or not file.stat().st_size:
        return None
    kept, found = kept_name(file), file.stat()
    with replacing(kept) as temporary:
        temporary.write_bytes(file.read_bytes())
    os.utime(kept, (found.st_atime, found.st_mtime))
    return kept
