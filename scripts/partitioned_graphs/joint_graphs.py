"""Forward and backward of a network as one graph, cut in two for a budget or by modules, and walked without data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import (
    _extract_fwd_bwd_modules,
    default_partition,
    min_cut_rematerialization_partition,
    reordering_to_mimic_autograd_engine,
)
from torch.fx.traceback import annotate, preserve_node_meta

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.recomputation.recomputed_modules import is_callable
from swinmr_profiling.profiler.counting.dispatch.complex_numbers import REAL_PER_COMPLEX, has_complex
from swinmr_profiling.profiler.counting.operators.operator_rules import rule_for
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace
from swinmr_profiling.training.step.losses import first_tensor

# What a module's nodes are marked with: names of the modules around them, from the outermost in.
MARK = "modules"


@dataclass
class JointGraph:
    """As AOTAutograd hands it to a partitioner. forward_outputs: how many of its results are the forward's."""

    module: fx.GraphModule
    inputs: list[Any]
    forward_outputs: int


@dataclass(frozen=True)
class Cut:
    """A cut graph as it runs: most bytes alive (beside nothing), multiply-adds, bytes allocated."""

    peak_bytes: int
    macs: int
    made_bytes: int


def joint_graph(built: BuiltModel, batch_size: int) -> JointGraph:
    """Of a network and the sum of its output's squares. Raises what AOTAutograd raises of what it cannot trace."""
    module = built.module.train()
    inputs = built.example_inputs(batch_size, which="training")
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    found: list[JointGraph] = []

    def loss(*flat: Tensor) -> Tensor:
        given = dict(zip(tensors, flat[: len(tensors)], strict=True))
        output = torch.func.functional_call(module, given, flat[len(tensors) :])
        return first_tensor(output).square().sum()

    def partition(joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **kwargs: Any) -> Any:
        found.append(JointGraph(joint, list(joint_inputs), num_fwd_outputs))
        return default_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)

    compiled = aot_function(
        loss, fw_compiler=lambda graph, _: graph, bw_compiler=lambda graph, _: graph, partition_fn=partition
    )
    with preserve_node_meta(), marked(module):
        compiled(*tensors.values(), *inputs)
    # As PyTorch's partitioner begins: what is computed twice in the same way is computed once.
    graph = found[0].module
    graph.graph = fx_graph_cse(graph.graph)
    return found[0]


@contextmanager
def marked(module: nn.Module):
    """Meanwhile every node that a forward makes knows which modules it is in."""
    with ExitStack() as stack:
        inside: list[str] = []
        for name, child in module.named_modules():
            if name and is_callable(child):
                child.forward = _marking(child.forward, name, inside)
                stack.callback(delattr, child, "forward")
        yield


def _marking(forward: Any, name: str, inside: list[str]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        inside.append(name)
        try:
            with annotate({MARK: list(inside)}):
                return forward(*args, **kwargs)
        finally:
            inside.pop()

    return run


def torch_cut(graph: JointGraph, budget: float) -> Cut:
    """PyTorch's own, for a share of the bytes that it would save."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.module.graph, val_map={}))
    with functorch_config.patch(activation_memory_budget=budget):
        forward, backward = min_cut_rematerialization_partition(
            fx.GraphModule(graph.module, copied), graph.inputs, num_fwd_outputs=graph.forward_outputs
        )
    return walked(graph, forward, backward)


def module_cut(graph: JointGraph, names: Sequence[str]) -> Cut:
    """Modules keep their inputs and are computed again; all else that the backward pass needs is saved."""
    saved = saved_values(graph, set(names))
    forward, backward = _extract_fwd_bwd_modules(
        graph.module, saved, saved_sym_nodes=[], num_fwd_outputs=graph.forward_outputs
    )
    # As PyTorch's partitioner ends: what is computed again is so where the backward pass comes to it.
    return walked(graph, forward, reordering_to_mimic_autograd_engine(backward))


def saved_values(graph: JointGraph, names: set[str]) -> list[fx.Node]:
    """Nodes of the forward part that are kept for the backward part."""
    nodes = list(graph.module.graph.nodes)
    after_loss: set[fx.Node] = set()
    for node in nodes:
        if is_tangent(node) or any(given in after_loss for given in node.all_input_nodes):
            after_loss.add(node)
    output = nodes[-1]
    results = output.args[0][: graph.forward_outputs]
    # Other nodes without a tangent are the backward's own, made of what it is given.
    of_forward: set[fx.Node] = set()
    pending = [node for node in results if node is not None]
    while pending:
        node = pending.pop()
        if node not in of_forward:
            of_forward.add(node)
            pending += node.all_input_nodes
    wanted = [
        given
        for node in after_loss
        if node is not output
        for given in node.all_input_nodes
        if given not in after_loss
    ]
    # What only the backward results ask for, and no tangent has to do with.
    wanted += [
        node
        for node in output.args[0][graph.forward_outputs :]
        if node is not None and node not in after_loss
    ]
    saved: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    while wanted:
        value = wanted.pop()
        if value in seen:
            continue
        seen.add(value)
        chosen = chosen_of(value, names)
        leaves = chosen is None or any(
            user in of_forward and chosen_of(user, names) != chosen for user in value.users
        )
        if value.op == "placeholder" or (value in of_forward and leaves) or value in results:
            saved.add(value)
        else:
            wanted += value.all_input_nodes
    return [node for node in nodes if node in saved]


def chosen_of(node: fx.Node, names: set[str]) -> str | None:
    """The chosen module that a node of the forward part is in."""
    around = (node.meta.get("custom") or {}).get(MARK, ())
    return next((name for name in around if name in names), None)


def walked(graph: JointGraph, forward: fx.GraphModule, backward: fx.GraphModule) -> Cut:
    """Both parts, one after the other, without data; a value is gone after its last use."""
    trace = WorkTrace()
    with trace, torch.no_grad():
        trace.phase = "inputs"
        primals, tangents = (
            [_on_meta(node.meta["val"]) for node in _placeholders(graph.module) if is_tangent(node) is wanted]
            for wanted in (False, True)
        )
        trace.phase = "forward"
        made = list(WithoutData(forward).boxed_run(list(primals)))
        outputs, kept = made[: graph.forward_outputs], made[graph.forward_outputs :]
        del made
        trace.phase = "backward"
        arguments = [*kept, *tangents]
        del kept, tangents
        gradients = WithoutData(backward).boxed_run(arguments)
        found = trace.finish(1, [])
        del gradients, outputs, primals
    sizes = found.sizes[found.phases != 1]
    return Cut(int(found.live_bytes().max()), trace.macs, int(sizes.sum()))


def _placeholders(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def is_tangent(node: fx.Node) -> bool:
    """Whether it is what the backward pass begins with."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def _on_meta(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


class WithoutData(fx.Interpreter):
    """Runs a graph that was traced on a CPU on the meta device."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": torch.device("meta"), "pin_memory": False}
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _on_meta(super().get_attr(target, args, kwargs))


class WorkTrace(StorageTrace):
    """Counts multiply-adds, too."""

    def __init__(self) -> None:
        super().__init__(as_on_cuda=False)
        self.macs = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(function, types, args, kwargs)
        rule = rule_for(function)
        if rule.action == "count" and rule.counted is not None:
            work = rule.counted[1](result, *args, **(kwargs or {}))
            macs = sum(work.values()) if isinstance(work, dict) else work or 0
            self.macs += macs * (REAL_PER_COMPLEX if has_complex(args) else 1)
        return result
