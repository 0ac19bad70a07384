"""What a count adds up: MACs by kind, operator, phase and module, and what stands apart from them."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from swinmr_profiling.profiler.counting.dispatch.complex_numbers import (
    REAL_PER_COMPLEX,
    THIRD_COUNTS,
    call_from_python,
)
from swinmr_profiling.profiler.counting.formulas import Work
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker, Owner
from swinmr_profiling.profiler.counting.operators.operator_table import PRODUCT

# torch.nn.functional.linear_cross_entropy in chunks, with a loss for each sample.
KEEPS_NO_LOGITS = "linear_cross_entropy_batch_chunked_no_reduction"


class Tallies:
    """The sums of one run.

    Args:
        tracker: attributes the work to modules.
        split_recomputed, create_graph: see CountingMode.

    Attributes:
        by_kind, by_operator: MACs. complex_by_operator: those of them that are of complex numbers.
        by_phase, elementwise_by_phase: MACs and estimated FLOPs of "forward", "loss", "backward" and "optimizer".
        uncounted: calls of operators that nobody has a formula for, and of what else was seen and not counted.
        apart: "recomputed_macs", and the estimates "elementwise_flops" and "softmax_macs".
        optimizing: whether an optimizer's step is under way.
    """

    def __init__(self, tracker: ModuleTracker, *, split_recomputed: bool, create_graph: bool) -> None:
        self.tracker = tracker
        self.split_recomputed = split_recomputed
        self.create_graph = create_graph
        self.by_kind: Counter[str] = Counter()
        self.by_operator: Counter[str] = Counter()
        self.by_phase: Counter[str] = Counter()
        self.elementwise_by_phase: Counter[str] = Counter()
        self.complex_by_operator: Counter[str] = Counter()
        self.uncounted: Counter[str] = Counter()
        self.apart: Counter[str] = Counter()
        self.optimizing = False
        # The node under way whose backward goes by chunks, and the products in it so far.
        self._chunks_of: object = None
        self._chunk_products = 0
        self._weight_storages = {
            t.untyped_storage()._cdata
            for t in (*tracker.root.parameters(), *tracker.root.buffers())
            if type(t) in (nn.Parameter, torch.Tensor)
            and t.layout is torch.strided
            and not nn.parameter.is_lazy(t)
        }

    def add(
        self,
        name: str,
        kind: str,
        work: Work,
        is_complex: bool,
        is_third: bool = False,
        args: tuple[Any, ...] = (),
    ) -> None:
        """Enters the work of one call into the tallies."""
        owner = self.tracker.current()
        works = work if isinstance(work, dict) else {self._kind(kind, owner.module, args): work or 0}
        times = REAL_PER_COMPLEX if is_complex else THIRD_COUNTS if is_third else 1
        recomputed = self.split_recomputed and (self._is_recomputation() or self._is_computed_again(name))
        phase = self.phase(owner)
        for work_kind, own in works.items():
            if work_kind == "recomputed" and not self.split_recomputed:
                work_kind = kind
            macs = own * times
            if recomputed or work_kind == "recomputed":
                self.apart["recomputed_macs"] += macs
            elif macs:
                self.by_kind[work_kind] += macs
                self.by_operator[name] += macs
                self.by_phase[phase] += macs
                self.tracker.own_macs[owner.path][work_kind] += macs
                if is_complex or is_third:
                    # With the third convolution the first and the second are known to be complex, too.
                    self.complex_by_operator[name] += own * REAL_PER_COMPLEX
                    self.tracker.own_complex_macs[owner.path] += own * REAL_PER_COMPLEX

    def estimate(self, flops: int) -> None:
        """Enters the estimated FLOPs of an operator without products."""
        self.apart["elementwise_flops"] += flops
        self.elementwise_by_phase[self.phase(self.tracker.current())] += flops

    def _kind(self, kind: str, module: nn.Module | None, args: Any) -> str:
        if kind not in ("linear", PRODUCT):
            return kind
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            return "recurrent"
        if kind == "linear":
            return kind
        # The last two tensors are the factors; either may be the weight, or a view of it.
        factors = [t for t in args if isinstance(t, torch.Tensor)][-2:]
        weighted = isinstance(module, nn.Linear) or any(
            type(t) in (nn.Parameter, torch.Tensor) and t.untyped_storage()._cdata in self._weight_storages
            for t in factors
        )
        return "linear" if weighted else "attention"

    def _is_computed_again(self, name: str) -> bool:
        """A backward that keeps no logits makes those of each chunk again, and a loss."""
        node: Any = torch._C._current_autograd_node()
        if node is None or KEEPS_NO_LOGITS not in node.name():
            return False
        if name not in ("aten::mm", "aten::addmm", "aten::addmm_"):
            return True
        gradients = sum(map(bool, node.needs_input_grad[:2]))
        if self._chunks_of is not node:
            self._chunks_of, self._chunk_products = node, 0
        self._chunk_products += 1
        return self._chunk_products % (1 + gradients) == 1 or not gradients

    def _is_recomputation(self) -> bool:
        """A backward runs with gradients disabled; checkpointing runs the forward again with them enabled.

        So does a backward that is itself to be differentiated (a gradient penalty, a network whose forward takes
        gradients): its operators are called by autograd's engine, those of a forward from Python.
        """
        if torch._C._current_graph_task_id() == -1 or not torch.is_grad_enabled():
            return False
        if self.tracker.in_module_of_this_backward():
            return True
        return not self.create_graph and call_from_python() is not None

    def phase(self, owner: Owner) -> str:
        """Whose work this is: a gradient that a module's forward takes is the forward's.

        A module outside the network (a loss network, whose own weights stay as they are) has a phase of its own, in
        forward and backward.
        """
        if owner.module is not None and not owner.in_network:
            return "loss"
        in_backward = torch._C._current_graph_task_id() != -1
        if self.tracker.in_module():
            return "backward" if in_backward and self.tracker.in_module_of_this_backward() else "forward"
        return "backward" if in_backward else "optimizer" if self.optimizing else "forward"
