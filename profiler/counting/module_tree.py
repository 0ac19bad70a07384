"""Where in a model the MACs are: attribution of operators to module paths, and the tree made of it.

Every operator is credited to the one module whose ``forward`` is running innermost; a module's total is its
own work plus its children's in the *static* tree. So totals add up by construction: a module that calls
itself is not counted twice, a module called by a stranger is found under its own path, and work outside every
module belongs to the root. A module that is registered in two places is credited under the path of the
caller.
"""

import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from swinmr_profiling.profiler.counting.dispatch.complex_numbers import complex_as_one
from swinmr_profiling.profiler.counting.report import ModuleNode
from swinmr_profiling.profiler.counting.script_modules import check_script

ROOT = ""


class Owner(NamedTuple):
    """Whose work it is: the running module, None outside of any, and the path that it is credited to.

    in_network: whether that is within a forward of the root. A loss network's forward is not.
    """

    module: nn.Module | None
    path: str
    in_network: bool = False


NOBODY = Owner(None, ROOT)
# Where a node that another thread made keeps its owner.
OWNER = "_counted_owner"


class ModuleTracker:
    """Knows which module of ``root`` is running. Use as a context manager around forward (and backward).

    The hooks are torch's global ones: nothing is registered on the modules themselves, and both come off on
    exit. They are called in every thread of the process; which module is running is told for each by itself.

    Attributes:
        own_macs: path -> kind -> MACs. own_complex_macs: path -> those of them that are of complex numbers.
        in_other_threads: whether work was handed to another thread.
        unseen_modules: class -> calls of modules of ``root`` in a thread that no dispatch mode has followed.

    Raises:
        ValueError: a module is a script whose operators do not pass the dispatcher (see script_modules.py).
    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self.own_macs: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.own_complex_macs: Counter[str] = Counter()
        self.in_other_threads = False
        self.unseen_modules: Counter[str] = Counter()
        self._paths: dict[nn.Module, list[str]] = defaultdict(list)
        self._of_thread = threading.local()
        # Autograd numbers its nodes in the order of the forward: whose forward was running from which number
        # on tells, in the backward, whose gradient is being computed.
        self._sequence_starts: list[int] = [0]
        self._sequence_owners: list[Owner] = [NOBODY]
        self._index(root, ROOT, ())

    @property
    def _stack(self) -> list[Owner]:
        """The modules that are running in this thread, innermost last, above whom its work is credited to at first."""
        if not hasattr(self._of_thread, "stack"):
            self._of_thread.stack = [NOBODY]
            # Beside each module the backward within which it was entered, -1 outside of any.
            self._of_thread.entered_in = [-1]
        stack: list[Owner] = self._of_thread.stack
        return stack

    @contextmanager
    def credited_to(self, owner: Owner, note: Callable[[Any], None] | None = None) -> Iterator[None]:
        """Credits what this thread does to ``owner`` (a ``current()`` of the thread that handed it over).

        note: leaves a note of ``running()`` on the nodes that this thread has made (see dispatch/thread_nodes.py).
        """
        before, entered_in = self._stack, self._of_thread.entered_in
        before_note, self._of_thread.note = getattr(self._of_thread, "note", None), note
        self.in_other_threads = True
        self._of_thread.stack, self._of_thread.is_followed = [before[0], owner], True
        self._of_thread.entered_in = [-1, torch._C._current_graph_task_id()]
        try:
            yield
        finally:
            self._of_thread.stack, self._of_thread.entered_in = before, entered_in
            self._of_thread.note = before_note

    def _note_nodes(self, values: Any) -> None:
        """Notes whose the nodes are that ``values`` come from, in a thread that needs notes."""
        if (note := getattr(self._of_thread, "note", None)) is not None:
            note(values)

    def _index(self, module: nn.Module, path: str, ancestors: tuple[nn.Module, ...]) -> None:
        if not any(isinstance(ancestor, torch.jit.ScriptModule) for ancestor in ancestors):
            check_script(module, path)
        self._paths[module].append(path)
        for name, child in module._modules.items():
            # A module registered inside itself would make an endless tree.
            if child is not None and child is not module and child not in ancestors:
                self._index(child, f"{path}.{name}" if path else name, (*ancestors, module))

    def in_module(self) -> bool:
        return self._stack[-1].module is not None

    def in_module_of_this_backward(self) -> bool:
        """Whether a module's forward is running that was called from the backward that is under way.

        Not so where a forward computes gradients itself: there the module called the backward.
        """
        return self.in_module() and self._of_thread.entered_in[-1] == torch._C._current_graph_task_id()

    def _path_of(self, module: nn.Module) -> str:
        """The module's path: of several, one under the innermost caller; of a stranger, the caller's."""
        candidates = self._paths.get(module)
        if not candidates:
            return self._stack[-1].path
        if len(candidates) == 1:
            return candidates[0]
        under = (
            path
            for caller in reversed(self._stack)
            for path in candidates
            if caller.path == ROOT or f"{path}.".startswith(f"{caller.path}.")
        )
        return next(under, candidates[0])

    def _mark_sequence(self) -> None:
        # Every thread has numbers of its own; a backward is attributed by those of the thread that is counted.
        if threading.get_ident() != self._thread:
            return
        # Under no_grad no node is made and the number stays: the last mark of a number wins.
        number = torch._C._autograd._get_sequence_nr()
        if self._sequence_starts[-1] == number:
            self._sequence_owners[-1] = self._stack[-1]
        else:
            self._sequence_starts.append(number)
            self._sequence_owners.append(self._stack[-1])

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        if module not in self._paths:
            # One that is not a submodule: in a list, or of somebody else.
            check_script(module, type(module).__name__)
        elif not (self._is_followed() or self.in_module()):
            self.unseen_modules[type(module).__name__] += 1
        self._note_nodes(args)
        in_network = module in self._paths or self._stack[-1].in_network
        self._stack.append(Owner(module, self._path_of(module), in_network))
        self._of_thread.entered_in.append(torch._C._current_graph_task_id())
        if torch.is_grad_enabled():
            self._mark_sequence()

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        # A module whose forward raised is left too (always_call), but one that another hook kept from
        # starting was never entered: leave down to this module, and only if it is there.
        self._note_nodes(output)
        for depth in range(len(self._stack) - 1, 0, -1):
            if self._stack[depth].module is module:
                del self._stack[depth:], self._of_thread.entered_in[depth:]
                break
        if torch.is_grad_enabled():
            self._mark_sequence()

    def _is_followed(self) -> bool:
        """Whether what this thread does is seen. A backward's own threads are not Python's, and are under the mode."""
        return getattr(self._of_thread, "is_followed", False) or _len_torch_dispatch_stack() > 0

    def running(self) -> Owner:
        """The module whose forward is running in this thread."""
        return self._stack[-1]

    def current(self) -> Owner:
        """Whom to credit: the running module, or in a backward the one that made the node."""
        if torch._C._current_graph_task_id() == -1 or self.in_module_of_this_backward():
            return self._stack[-1]
        node = torch._C._current_autograd_node()
        if self.in_module() and not hasattr(node, "_sequence_nr"):
            return self._stack[-1]
        if self.in_other_threads and (owner := getattr(node, "metadata", {}).get(OWNER)) is not None:
            return cast(Owner, owner)
        number = node._sequence_nr() if hasattr(node, "_sequence_nr") else 0
        return self._sequence_owners[bisect_right(self._sequence_starts, number) - 1]

    def __enter__(self) -> "ModuleTracker":
        self._thread = threading.get_ident()
        self._of_thread.is_followed = True
        self._handles = (
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        )
        return self

    def __exit__(self, *exception: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def tree(self) -> ModuleNode:
        """The report's ``by_module``: name, path, class, macs (with children), own, parameters, children.

        ``own`` has the MACs by kind of the module's forward outside its children; ``macs_complex_as_one`` is
        ``macs`` with one per complex multiply-add. ``parameters`` are the distinct elements in the subtree: a
        shared parameter counts once per node, so children may add up to more.
        """
        return self._node(self.root, "", ROOT, ())[0]

    def _node(
        self, module: nn.Module, name: str, path: str, ancestors: tuple[Any, ...]
    ) -> tuple[ModuleNode, dict[int, int]]:
        own = dict(self.own_macs.get(path, {}))
        parameters = (p for p in module._parameters.values() if p is not None)
        sizes = {id(p): 0 if nn.parameter.is_lazy(p) else p.numel() for p in parameters}
        children: list[ModuleNode] = []
        for child_name, child in module._modules.items():
            if child is None or child is module or child in ancestors:
                continue
            child_path = f"{path}.{child_name}" if path else child_name
            child_node, child_sizes = self._node(child, child_name, child_path, (*ancestors, module))
            children.append(child_node)
            sizes.update(child_sizes)
        own_as_one = complex_as_one(sum(own.values()), self.own_complex_macs[path])
        node: ModuleNode = {
            "name": name,
            "path": path,
            "class": type(module).__name__,
            "macs": sum(own.values()) + sum(child["macs"] for child in children),
            "macs_complex_as_one": own_as_one + sum(child["macs_complex_as_one"] for child in children),
            "own": own,
            "parameters": sum(sizes.values()),
            "children": children,
        }
        return node, sizes
