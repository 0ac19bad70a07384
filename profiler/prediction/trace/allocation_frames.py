"""Where in the code each allocation of a trace is made: modules and lines, of the forward pass for gradients too."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace

REPOSITORY = Path(__file__).resolve().parents[3]
# What stands between a user's line and the operator, and what looks on; and, by the functions' names, what calls.
BETWEEN = (
    "profiler/prediction/", "torch/_ops.py", "torch/nn/modules/module.py", "torch/utils/_contextlib.py",
    "torch/utils/_python_dispatch.py", "contextlib.py", "torch/_jit_internal.py", "torch/utils/_pytree.py",
    "torch/_compile.py", "torch/_dynamo/", "unittest/mock.py",
)  # fmt: skip
# A stack that is this deep goes in circles; the lines next to the operator are kept.
MAX_FRAMES = 60

# File (short), line, and function with the module it is of.
Line = tuple[str, int, str]


def short_name(file: str) -> str:
    """A file as from its package's folder on: "torch/optim/adamw.py", "models/swin/blocks.py"; others whole."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file.rpartition(mark)[2]
    path = Path(file)
    if path.is_relative_to(REPOSITORY):
        return path.relative_to(REPOSITORY).as_posix()
    return path.name if "/lib/python" in file else file


def without_folder(line: Line) -> Line:
    """The line of a file that has a whole path, by the file's name alone."""
    file, number, function = line
    return (Path(file).name, number, function) if Path(file).is_absolute() else line


class FramesTrace(StorageTrace):
    """A trace that also keeps, for each allocation, the stack of lines that made it (`stacks`, innermost first).

    An allocation of the backward pass has the lines of the forward operator whose gradient it computes, found by the
    sequence numbers that autograd gives its nodes. Modules and parameters of the network and its loss are known by
    their names; which module runs, by its calls: a frame's own variables must not be looked at, since that would keep
    tensors alive.
    """

    def __init__(self, network: nn.Module, loss: nn.Module, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.stacks: list[tuple[Line, ...]] = []
        self._by_node: dict[int, tuple[Line, ...]] = {}
        self._next_node = 0
        self._module_names: dict[int, str] = {}
        self._tensor_names: dict[int, str] = {}
        # Name of each module that is being run, and the frame depth below which it is.
        self._running: list[tuple[str, int]] = []
        for prefix, root in (("", network), ("loss", loss)):
            for name, part in root.named_modules(prefix=prefix):
                self._module_names[id(part)] = f"{name or 'the network'} ({type(part).__name__})"
            for name, tensor in (*root.named_parameters(prefix=prefix), *root.named_buffers(prefix=prefix)):
                self._tensor_names[id(tensor)] = name

    def __enter__(self) -> FramesTrace:
        # Not by hooks: a network that is looked at so may go another way (models/swin/block_layers.py).
        called = nn.Module.__call__
        running, names = self._running, self._module_names

        def call(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
            name = names.get(id(part), type(part).__name__)
            running.append((name, _depth(sys._getframe(0))))
            try:
                return called(part, *args, **kwargs)
            finally:
                running.pop()

        self._calls_seen = mock.patch.object(nn.Module, "__call__", call)
        self._calls_seen.start()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)  # type: ignore[no-untyped-call]
        self._calls_seen.stop()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note_nodes()
        return super().__torch_dispatch__(function, types, args, kwargs)

    def enter(self, tensor: Tensor, operator: str) -> None:
        name = self._tensor_names.get(id(tensor))
        super().enter(tensor, operator if name is None else f"{operator} of {name}")

    def _allocate(self, storage: torch.UntypedStorage, operator: str) -> None:
        before = len(self._made)
        # The names of operators stay those of a trace without frames.
        super()._allocate(storage, operator.partition(" of ")[0])
        if len(self._made) > before:
            self.stacks.append((("", 0, operator), *self._origin(), ("", 0, f"in the {self.phase} phase")))

    def _note_nodes(self) -> None:
        """Autograd nodes that were made since the last operator are of the one that is about to run."""
        made = torch._C._autograd._get_sequence_nr()
        if made != self._next_node and torch.is_grad_enabled():
            lines = self._lines()
            for number in range(self._next_node, made):
                self._by_node[number] = lines
        self._next_node = made

    def _origin(self) -> tuple[Line, ...]:
        node = torch._C._current_autograd_node()
        if node is None or torch.is_grad_enabled():  # what checkpointing computes again is a forward pass
            return self._lines()
        variable = getattr(node, "variable", None)
        if variable is not None:
            of = self._tensor_names.get(id(variable), "a tensor")
            return (("autograd", 0, f"gradient of {of} ({node.name()})"), *self._lines())
        forward = self._by_node.get(node._sequence_nr(), ())
        return (("autograd", 0, f"{node.name()}, the backward of"), *forward)

    def _lines(self) -> tuple[Line, ...]:
        found: list[Line] = []
        frame: FrameType | None = sys._getframe(1)
        running = list(self._running)
        depth = _depth(frame)
        while frame is not None and len(found) < MAX_FRAMES:
            code = frame.f_code
            file = short_name(code.co_filename)
            if not any(file.startswith(part) or file.endswith("/" + part) for part in BETWEEN):
                where = f"{code.co_name}, module {running[-1][0]}" if running else code.co_name
                found.append((file, frame.f_lineno, where))
            elif file.endswith("prediction/trace/traced_step.py"):
                break
            depth -= 1
            while running and running[-1][1] >= depth:
                running.pop()
            frame = frame.f_back
        return tuple(found)


def _depth(frame: FrameType | None) -> int:
    """How many frames are on the stack, this one included."""
    count = 0
    while frame is not None:
        count += 1
        frame = frame.f_back
    return count
