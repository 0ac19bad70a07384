"""A file of weights, read without running anything that is in it, and told what it is when it is none."""

from __future__ import annotations

import hashlib
import pickle
import pickletools
import stat
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from swinmr_profiling.models.errors import ModelError

SUFFIXES = (".pth", ".pt", ".ckpt", ".safetensors", ".bin")
MENTIONED_IMPORTS = 4
# How what torch.save writes begins: an archive, or a pickle of old. What else lies under such names, often.
STARTS, ARCHIVE, LFS_POINTER = (b"PK", b"\x80"), b"PK\x03\x04", b"version https://git-lfs"
SHOWN_BYTES = 16
# Opcodes that put a text on the stack, which the one for an import by stack then takes.
TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING", "STRING")
# What lies in checkpoints of trainers and cannot run: numbers of numpy (a best score), plain containers.
HARMLESS = (
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("collections", "defaultdict"),
    ("_codecs", "encode"),
    ("builtins", "set"),
)


class NoFileError(OSError):
    """The name is of a folder, a pipe or a device."""


def refuse_pipes(file: Path) -> None:
    """NoFileError for what is not an ordinary file (opening a pipe waits for ever), FileNotFoundError for none."""
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        raise NoFileError("is a folder" if stat.S_ISDIR(mode) else "is not an ordinary file")


def sha256_of(file: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal. Raises ModelError for a file that cannot be read."""
    try:
        with open(file, "rb") as stream:
            digest = hashlib.sha256()
            while block := stream.read(2**20):
                digest.update(block)
            return digest.hexdigest()
    except OSError as error:
        raise ModelError(f"{file}: {_no_file(file, error)}") from error


def read_checkpoint(file: Path) -> Any:
    """What a checkpoint holds, on the CPU. Nothing in the file is run or imported.

    Raises ModelError, in one line: a missing or damaged file, TorchScript, and a pickle that would import code (with
    what it would have imported).
    """
    try:
        refuse_pipes(file)
        if file.suffix.lower() == ".safetensors":
            return _read_safetensors(file)
        with torch.serialization.safe_globals(_harmless()):
            return torch.load(file, map_location="cpu", weights_only=True)
    except ModelError:
        raise
    except NoFileError as error:
        raise ModelError(f"{file}: cannot be read as a checkpoint of tensors: it {error}") from error
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise ModelError(f"{file}: {_no_file(file, error)}") from error
    except Exception as error:  # torch.load raises half a dozen types for a file that is none of its own
        raise ModelError(f"{file}: {_why_not(file, error)}") from error


def _read_safetensors(file: Path) -> Any:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ModelError(
            f'{file}: .safetensors needs the package safetensors: pip install ".[restoration]"'
        ) from error
    if not file.is_file():
        raise FileNotFoundError(file)
    try:
        return load_file(file)
    except SafetensorError as error:
        raise ModelError(
            f"{file}: is not a safetensors file, or a truncated one: {_first_line(error)}"
        ) from error


def _harmless() -> list[Any]:
    import numpy as np

    scalars = [getattr(np.dtypes, name) for name in np.dtypes.__all__]
    scalar = (getattr(np, "_core", None) or np.core).multiarray.scalar
    # Files name it as the numpy that wrote them called it.
    names = [(scalar, f"numpy.{place}.multiarray.scalar") for place in ("core", "_core")]
    return [np.dtype, *names, defaultdict, *scalars]


def _no_file(file: Path, error: OSError) -> str:
    if file.is_dir():
        return "cannot be read as a checkpoint of tensors: it is a folder"
    if isinstance(error, FileNotFoundError):
        return "no such checkpoint"
    return f"cannot be read: {error.strerror or error}"


def _start_of(file: Path) -> bytes:
    try:
        with open(file, "rb") as stream:
            return stream.read(64)
    except OSError:
        return b""


def _why_not(file: Path, error: Exception) -> str:
    """The reason in the user's words."""
    if _is_torchscript(file):
        return "is TorchScript, a program with weights in it: save its state_dict() and give that"
    foreign = [name for name in imports_of(file) if not _is_of_tensors(name)]
    if foreign:
        shown = ", ".join(foreign[:MENTIONED_IMPORTS]) + (", ..." if len(foreign) > MENTIONED_IMPORTS else "")
        return (
            f"refused: reading it would import and run {shown}; nothing was run. Save its tensors alone: "
            "torch.save(network.state_dict(), file)"
        )
    text, start = _first_line(error), _start_of(file)
    if start.startswith(LFS_POINTER):
        return "is a pointer of Git LFS, not the weights: git lfs pull fetches them"
    if start and not start.startswith(STARTS):
        # A page that was saved in a file's place, or a text.
        return (
            f"cannot be read as a checkpoint of tensors: it begins with {start[:SHOWN_BYTES]!r}, as none does"
        )
    words_of_truncated = ("failed finding central directory", "PytorchStreamReader")
    if start.startswith(ARCHIVE) and not _is_archive(file):
        text = "is it truncated? (it begins as torch.save's archive and has no end)"
    elif isinstance(error, EOFError) or any(words in text for words in words_of_truncated):
        text = f"is it truncated? ({text})"
    return f"cannot be read as a checkpoint of tensors: {text}"


def _is_of_tensors(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return (
        (module, attribute) in HARMLESS
        or name.startswith(("torch._utils._rebuild", "torch.storage.", "torch.serialization."))
        or (module in ("torch", "torch.cuda") and attribute.endswith(("Storage", "Size", "device", "dtype")))
        or name
        in (
            "torch.nn.parameter.Parameter",
            "torch._tensor._rebuild_from_type_v2",
            "collections.OrderedDict",
        )
    )


def _is_archive(file: Path) -> bool:
    try:
        return zipfile.is_zipfile(file)
    except zipfile.BadZipFile:  # its end says that it has other parts, on other disks
        return False


def _is_torchscript(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("constants.pkl") for name in archive.namelist())
    except Exception:  # no archive, or a damaged one: names that are not text, sizes that cannot be, ...
        return False


def imports_of(file: Path) -> list[str]:
    """`module.name` of everything that a pickle in the file would import, each once, found without importing it."""
    found: dict[str, None] = {}
    try:
        for pickled in _pickles(file):
            found |= dict.fromkeys(_imports(pickled))
    except Exception:  # a damaged archive raises half a dozen types; what was found until then stands
        pass
    return list(found)


def _pickles(file: Path) -> Iterator[bytes]:
    if _is_archive(file):
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    yield archive.read(name)
    else:
        yield file.read_bytes()


def _imports(pickled: bytes) -> Iterator[str]:
    position = 0
    while position < len(pickled):  # the old format is several pickles in a row
        texts: list[str] = []
        end: int | None = None
        try:
            for opcode, argument, at in pickletools.genops(pickled[position:]):
                if opcode.name in ("GLOBAL", "INST"):
                    yield str(argument).replace(" ", ".", 1)
                elif opcode.name == "STACK_GLOBAL" and len(texts) >= 2:
                    yield f"{texts[-2]}.{texts[-1]}"
                elif opcode.name in TEXTS:
                    texts.append(str(argument))
                end = (at or 0) + 1
        except (ValueError, IndexError, UnicodeDecodeError, pickle.UnpicklingError):
            return
        if end is None:
            return
        position += end


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
