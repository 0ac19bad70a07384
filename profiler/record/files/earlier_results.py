"""What an earlier run left in the file of `--output`: a run that has nothing new leaves it as it is."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from swinmr_profiling.configs.writing.atomic_files import replacing

# Of the content of a file: what would be missed, by name. Raises for a content of another kind.
Results = dict[str, Any]
ResultsOf = Callable[[Any], Results]


class EarlierResults:
    """The results in a file that was there before the run, until the run has replaced them."""

    def __init__(self, results_of: ResultsOf | None) -> None:
        """results_of: None where nothing in a file would be missed."""
        self.results_of = results_of
        self._found: Results | None = None

    def read(self, file: Path) -> None:
        """Takes what the file holds. Whatever is not content of this kind counts as something. Raises OSError."""
        if self.results_of is None or not file.exists() or not file.stat().st_size:
            self._found = None
            return
        try:
            self._found = self.results_of(json.loads(file.read_text(encoding="utf-8"))) or None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._found = {}

    def outweigh(self, content: object) -> bool:
        """Whether the file holds something and the content no result that is not in it."""
        if self._found is None or self.results_of is None:
            return False
        return all(self._found.get(name) == result for name, result in self.results_of(content).items())

    def are_replaced(self) -> None:
        """The file is this run's own by now."""
        self._found = None


def profile_results(content: Any, *, failures: bool = False) -> Results:
    """What of a profile was measured or predicted, out of memory included.

    The counts of the architecture are none of it: they are made again in seconds. failures: with the sizes that
    failed otherwise, for a resumed run, which has all of the earlier one's results and adds to them.
    """
    found = {name: content.get(name) for name in ("single_image", "memory_model", "perceptual_metric")}
    found |= {f"batch {size}": block for size, block in content["batch_profiling"].items()}
    return {name: block for name, block in found.items() if block and (failures or _is_result(block))}


def _is_result(block: Any) -> bool:
    training = block.get("training") or {}
    measured_training = training.get("source") == "measured" and "error" not in training
    return block.get("error") in (None, "OOM") or measured_training


def pipeline_results(content: Any) -> Results:
    """The pipelines that could be costed."""
    return {record["pipeline"]: record for record in content["pipelines"] if record["enabled"]}


def gpu_check_results(content: Any) -> Results:
    """The combinations of a check on a GPU that were measured, or out of memory as they should be."""
    rows = content["combinations"]
    return {row["name"]: row for row in rows if row["status"] == "measured" or row.get("as_expected")}


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
