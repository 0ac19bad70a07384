"""Whose gradients are whose, where a forward runs in several threads.

Autograd numbers its nodes in each thread anew, so that a number tells nothing of nodes that another thread made. Those
carry a note instead: of the module that was running, and whether they are the third convolution of a complex one.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from swinmr_profiling.profiler.counting.dispatch.complex_numbers import IS_THIRD
from swinmr_profiling.profiler.counting.dispatch.threads import mode_of_this_thread
from swinmr_profiling.profiler.counting.module_tree import OWNER, ModuleTracker


class NotedNodes(TorchFunctionMode):
    """Leaves the note on every node that a function of PyTorch makes in this thread."""

    def __init__(self, tracker: ModuleTracker) -> None:
        super().__init__()
        self.tracker = tracker
        self._noted_to = torch._C._autograd._get_sequence_nr()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not torch.is_grad_enabled():
            # As in the forward of a function of one's own, whose node has its number before it is part of a graph.
            return result
        # With those of a function of one's own, which is none of PyTorch's, since the last.
        made = range(self._noted_to, torch._C._autograd._get_sequence_nr())
        if made:
            composed = getattr(mode_of_this_thread(), "composed", None)
            for node in _nodes(result, made):
                if OWNER not in node.metadata:
                    node.metadata[OWNER] = self.tracker.running()
                    node.metadata[IS_THIRD] = composed is not None and composed.has_third(node)
            self._noted_to = made.stop
        return result


def _nodes(result: Any, numbers: range) -> Iterator[Any]:
    """The nodes of these numbers from which a result comes. Another thread's have others, but for chance."""
    waiting = [
        t.grad_fn for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.grad_fn is not None
    ]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node in seen or not hasattr(node, "_sequence_nr") or node._sequence_nr() not in numbers:
            continue
        seen.add(node)
        yield node
        waiting += [behind for behind, _ in node.next_functions if behind is not None]
