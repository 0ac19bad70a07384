"""What of a command's outputs is complete: by name, comparable, and checked while it is read."""

from __future__ import annotations

import csv
import functools
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema

REPOSITORY = Path(__file__).resolve().parents[2]


class BrokenOutputError(Exception):
    """A file among the outputs is neither what it was nor whole."""


def read_json(file: Path) -> Any:
    """Strict JSON. Raises BrokenOutputError."""

    def refuse(name: str) -> None:
        raise BrokenOutputError(f"{file.name}: {name} in a JSON file")

    try:
        return json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    except (ValueError, OSError) as error:
        raise BrokenOutputError(f"{file.name}: {error}") from error


def is_temporary(file: Path) -> bool:
    """What a write that was cut off by SIGKILL leaves beside the output, or a lock; nothing reads it."""
    return file.name.startswith(".") and file.name.endswith((".tmp", ".lock"))


@functools.cache
def _schema() -> jsonschema.Draft202012Validator:
    text = (REPOSITORY / "profiler/record/profile.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def check_profile(content: Any, name: str) -> None:
    """Raises BrokenOutputError for what the committed schema refuses."""
    error = next(_schema().iter_errors(content), None)
    if error is not None:
        raise BrokenOutputError(f"{name}: {list(error.absolute_path)}: {error.message[:200]}")


def measured_sizes(content: dict[str, Any]) -> dict[str, Any]:
    """The raw samples of every batch size that was measured."""
    blocks = content["batch_profiling"].items()
    return {f"batch {size}": block["timing"]["samples_ms"] for size, block in blocks if "timing" in block}


def out_of_memory(out: Path) -> set[str]:
    """The batch sizes of profile.json that were out of memory, and those above them that were skipped for it."""
    blocks = read_json(out / "profile.json")["batch_profiling"].items()
    return {
        f"batch {size}"
        for size, block in blocks
        if block.get("error") == "OOM" or str(block.get("detail")).endswith("was out of memory")
    }


def of_profile(out: Path) -> dict[str, Any]:
    """Batch sizes of profile.json; the other files are reports of it."""
    found: dict[str, Any] = {}
    if (out / "profile.json").exists():
        content = read_json(out / "profile.json")
        check_profile(content, "profile.json")
        found |= measured_sizes(content)
        if content["architecture"] is not None and content["architecture"].get("macs") is not None:
            found["macs"] = content["architecture"]["macs"]
    reports = [file for file in _files(out) if file.suffix in (".csv", ".md")]
    for file in reports:
        _whole(file)
    return found


def of_files(out: Path) -> dict[str, Any]:
    """Every file, whole, by its size: what was complete is there, as it was or made anew."""
    for file in _files(out):
        _whole(file)
    return {str(file.relative_to(out)): True for file in _files(out)}


def of_training(out: Path) -> dict[str, Any]:
    """The highest step that a checkpoint holds, and whether there is a best one."""
    steps = []
    for file in sorted(out.glob("**/*.pth")):
        if is_temporary(file):
            continue
        try:
            with zipfile.ZipFile(file) as archive:
                if archive.testzip() is not None:
                    raise BrokenOutputError(f"{file.name} is damaged")
        except (zipfile.BadZipFile, OSError) as error:
            raise BrokenOutputError(f"{file.name}: {error}") from error
        if file.name.startswith("step_"):
            steps.append(int(file.stem.removeprefix("step_")))
    found: dict[str, Any] = {"step": max(steps)} if steps else {}
    found |= {name: True for name in ("last.pth", "best.pth") if list(out.glob(f"**/checkpoints/{name}"))}
    return found


def of_evaluation(out: Path) -> dict[str, Any]:
    """The three files of an evaluation, each whole."""
    summary = out / "evaluation/summary.json"
    if summary.exists() and read_json(summary)["status"] not in ("complete", "partial"):
        raise BrokenOutputError("summary.json has no status")
    return of_files(out)


def state_of_training(out: Path) -> dict[str, int]:
    """Checksums of all tensors in the last checkpoint: weights, averages, optimizer, generators."""
    (last,) = out.glob("**/checkpoints/last.pth")
    with zipfile.ZipFile(last) as archive:
        return {
            info.filename.partition("/")[2]: info.CRC
            for info in archive.infolist()
            if "/data/" in info.filename
        }


def _files(out: Path) -> list[Path]:
    return [file for file in sorted(out.rglob("*")) if file.is_file() and not is_temporary(file)]


def _whole(file: Path) -> None:
    """Raises BrokenOutputError for a file that was cut."""
    text = "" if file.suffix in (".png", ".pth", ".npz") else file.read_text(encoding="utf-8")
    if file.suffix == ".json" and "//" not in text:
        read_json(file)
    elif file.suffix == ".html" and not text.rstrip().endswith("</html>"):
        raise BrokenOutputError(f"{file.name} is cut")
    elif file.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(text)))
        if not text.endswith("\n") or len({len(row) for row in rows if row}) > 1 or not rows:
            raise BrokenOutputError(f"{file.name} is cut")
    elif file.suffix == ".md" and not text.endswith("\n"):
        raise BrokenOutputError(f"{file.name} is cut")
    elif file.suffix == ".png":
        _whole_picture(file)


def _whole_picture(file: Path) -> None:
    import PIL.Image

    try:
        with PIL.Image.open(file) as picture:
            picture.load()
    except (OSError, SyntaxError) as error:
        raise BrokenOutputError(f"{file.name}: {error}") from error
