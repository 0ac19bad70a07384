"""What a count returns: plain integers, frozen, written to JSON as they are."""

from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

ModuleNode = TypedDict(
    "ModuleNode",
    {
        "name": str,
        "path": str,
        "class": str,
        "macs": int,
        "macs_complex_as_one": int,
        "own": dict[str, int],
        "parameters": int,
        "children": list["ModuleNode"],
    },
)
"""A module of the tree. ``macs`` and ``parameters`` include the children, ``own`` is its own work by kind."""


@dataclass(frozen=True)
class CountReport:
    """MACs of one call of a model.

    Attributes:
        macs: multiply-adds of matrix products, convolutions and attention products, exact. They are real ones: a
            complex multiply-add is four.
        flops: 2 x macs.
        macs_complex_as_one: the same with one per complex multiply-add, as others count them; equal to macs where
            nothing is complex.
        by_kind: MACs of "convolution", "linear", "attention" (products of two computed tensors), "recurrent",
            "other".
        by_operator: MACs by the dispatcher's operator name. by_operator_complex_as_one: with one per complex
            multiply-add.
        by_module: the tree of modules.
        parameters, trainable_parameters: elements, a shared parameter once.
        uncounted_operators: operators nobody has a formula for, of whatever numbers, with their calls; under
            "unseen::" what ran in threads that could not be followed. Empty means that ``macs`` is complete.
        elementwise_flops, softmax_macs: estimates of the work that is not in ``macs`` (see elementwise.py).
        input_shapes: shapes of the tensors among the inputs, in order.
        counted_on: device the copy ran on: "meta", or "cpu" / "cuda" where it cannot run on meta.
        note: what a reader of the figure should know, or None.
    """

    macs: int
    flops: int
    macs_complex_as_one: int
    by_kind: dict[str, int]
    by_operator: dict[str, int]
    by_operator_complex_as_one: dict[str, int]
    by_module: ModuleNode
    parameters: int
    trainable_parameters: int
    uncounted_operators: dict[str, int]
    elementwise_flops: int
    softmax_macs: int
    input_shapes: list[list[int]]
    counted_on: str
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TrainingCountReport(CountReport):
    """MACs of a training step.

    ``macs`` (also as ``training_macs``) are the model's: forward, backward, what modules outside the network (a loss
    network) multiply in either, and what an optimizer does, each of which stands in ``macs_by_phase`` as "forward",
    "backward", "loss" and "optimizer". What checkpointing or a fused attention backward computes again is
    ``recomputed_macs``, apart; the hardware executes the sum. ``elementwise_flops_by_phase`` is the estimate of the
    other work; what the optimizer does to parameters is nearly all of that kind.
    """

    training_macs: int = 0
    recomputed_macs: int = field(default=0)
    macs_by_phase: dict[str, int] = field(default_factory=dict)
    elementwise_flops_by_phase: dict[str, int] = field(default_factory=dict)
