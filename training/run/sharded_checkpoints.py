"""Checkpoints that every process writes its part of, by torch.distributed.checkpoint; read whole by any number of them.

A folder `step_*.dcp` holds the tensors, and `run.pth` in it all else. It gets its name when it is whole.
"""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from swinmr_profiling.configs.writing.atomic_files import reason
from swinmr_profiling.training.errors import first_line
from swinmr_profiling.training.run.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from swinmr_profiling.training.strategies.sharded_state import nested

REST = "run.pth"


# All that the index of torch.distributed.checkpoint, a pickle, names; it holds sizes and places and nothing that runs.
NAMED_BY_THE_INDEX = {
    "torch.distributed.checkpoint.metadata": (
        "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "BytesStorageMetadata", "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": (
        "Size", "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    ),
    "pathlib": ("PosixPath", "WindowsPath", "PurePosixPath"),
    "collections": ("OrderedDict",),
}  # fmt: skip


class _Index(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in NAMED_BY_THE_INDEX.get(module, ()):
            raise pickle.UnpicklingError(f"names {module}.{name}, which no checkpoint needs")
        return super().find_class(module, name)


def write_sharded(tensors: dict[str, Tensor], rest: dict[str, Any], folder: Path) -> None:
    """Every process calls this with its tensors; the folder is there when all of them are written.

    rest: what is not a tensor of the state, with the optimizer's groups. Raises CheckpointError, in every process.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException  # no Exception

    first = dist.get_rank() == 0
    unfinished = folder.with_name(f".{folder.name}.tmp")
    failure: str | None = None
    if first:
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        except OSError as error:
            failure = f"{folder} {reason(error)}"
    _agree(failure)
    try:
        dcp.save(tensors, storage_writer=dcp.FileSystemWriter(unfinished, thread_count=1))
        if first:
            write_checkpoint(rest, unfinished / REST)
    except CheckpointError as error:
        failure = str(error)
    except (Exception, CheckpointException) as error:  # what a disk refuses, with the ranks it came from
        failure = f"{folder} cannot be written: {_cause(error)}"
    _agree(failure)
    if first:
        try:
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(unfinished, folder)
        except OSError as error:
            failure = f"{folder} {reason(error)}"
    _agree(failure)


def _cause(error: BaseException) -> str:
    failures = getattr(error, "failures", None)
    return f"{next(iter(failures.values()))[0]}" if failures else first_line(error)


def _agree(failure: str | None) -> None:
    """Raises in all processes what one has failed with."""
    told: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(told, failure)
    for text in told:
        if text is not None:
            raise CheckpointError(text)


def read_sharded(folder: Path) -> dict[str, Any]:
    """The content of a folder as `read_checkpoint` gives a file's: whole tensors on the CPU. Raises CheckpointError."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException  # no Exception
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    content = read_checkpoint(folder / REST)
    try:
        # torch reads it without looking: it is read here first, with nothing in reach that runs.
        with (folder / ".metadata").open("rb") as stream:
            _Index(stream).load()
        reader = dcp.FileSystemReader(folder)
        stored = reader.read_metadata().state_dict_metadata
        tensors: dict[str, Any] = {
            name: torch.empty(found.size, dtype=found.properties.dtype)
            for name, found in stored.items()
            if isinstance(found, TensorStorageMetadata)
        }
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    except (Exception, CheckpointException) as error:  # a missing or short file, a pickle that is none
        raise CheckpointError(f"{folder} cannot be read: {_cause(error)}") from error
    parts = nested(tensors)
    moments = parts.pop("optimizer_state")
    return {**content, **parts, "optimizer": {"state": moments, "param_groups": content["optimizer_groups"]}}
