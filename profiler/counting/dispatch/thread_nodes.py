"""Whose gradients are whose, where a forward runs in several threads.

Autograd numbers its nodes in each thread anew, so that a number tells nothing of nodes that another thread made. Those
carry a note instead: of the module that was running, and whether they are the third convolution of a complex one.
"""

from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
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
        # Numbers that functions of one's own took, and whose nodes nobody has met yet.
        self._waiting: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.note((args, kwargs))
        given = _ends((args, kwargs))
        result = func(*args, **kwargs)
        self.note(result, set(given))
        return result

    def note(self, values: Any, seen: set[Any] | None = None) -> None:
        """Leaves the note on what this thread has made since the last, of all that ``values`` come from.

        Asked before a function of PyTorch and where a module begins and ends, too: no mode is told of a function of
        one's own. seen: nodes that are older, where these are the results of a function of PyTorch.
        """
        if torch.is_grad_enabled():
            # Else as in the forward of a function of one's own: its node has its number before it is part of a graph.
            made = range(self._noted_to, torch._C._autograd._get_sequence_nr())
            self._noted_to = made.stop
            self._waiting.update(made)
            self._note(_ends(values), made.start, seen or set())
            if seen is not None:
                self._waiting.difference_update(made)

    def _note(self, ends: list[Any], start: int, seen: set[Any]) -> None:
        """Leaves the note on the nodes behind ``ends`` that wait for one; before ``start`` one's own functions alone.

        A node of another thread may have such a number, too. But in one thread what is behind a node was made before
        it, and no two have one number.
        """
        composed = getattr(mode_of_this_thread(), "composed", None)
        looked_at = [(end, self._noted_to) for end in ends] if self._waiting else []
        for node, below in looked_at:  # which grows
            number = node._sequence_nr() if hasattr(node, "_sequence_nr") else -1
            if node in seen or number not in self._waiting or number >= below:
                continue
            if number < start and not isinstance(node, BackwardCFunction):
                continue
            seen.add(node)
            self._waiting.remove(number)
            if OWNER not in node.metadata:
                node.metadata[OWNER] = self.tracker.running()
                node.metadata[IS_THIRD] = composed is not None and composed.has_third(node)
            looked_at += [(behind, number) for behind, _ in node.next_functions if behind is not None]


def _ends(values: Any) -> list[Any]:
    """The nodes whose results these are."""
    return [t.grad_fn for t in tree_leaves(values) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
