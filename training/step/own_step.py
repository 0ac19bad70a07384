"""A training step that is the user's own: what it is, what it holds, and one call of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves, tree_map

from swinmr_profiling.input_error import InputError

# A step that steps its optimizers in every n-th call alone (accumulation, a discriminator now and then) is called until
# each has made its state and stepped once more with it, this often at most.
MOST_CALLS = 64
STEPS_OF_EACH = 2
# How deep networks and optimizers are looked for in what a step holds.
DEPTH = 4


class OwnStepError(InputError):
    """A step that cannot be used as it is, in one line for its author."""


@runtime_checkable
class TrainingStep(Protocol):
    """A step written by the user, as a class: networks and optimizers, and one optimizer step.

    A third method ``batch(size)``, which makes a batch of that many samples, is needed where batches are no nest of
    tensors with the samples along their first axis. ``validate(batch)``, called without gradients, is one batch of what
    the user's loop does between steps; ``validation_batch(size)`` makes it where ``batch(size)`` would not.
    """

    def setup(self, device: torch.device) -> None:
        """Makes networks and optimizers, on the device."""

    def step(self, batch: Any) -> object:
        """One step: forward, backward, optimizer; or a loss, where the rest is left to the caller (`take_step`)."""


def named_parts(step: object, kinds: type | tuple[type, ...]) -> dict[str, Any]:
    """What a step holds of these kinds, each once, by the path of its attribute ("trainer.model"), in their order.

    A part inside another of the kinds is that one's own.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def look(value: object, path: str, depth: int) -> None:
        if id(value) in seen or depth > DEPTH:
            return
        seen.add(id(value))
        if isinstance(value, kinds):
            found[path] = value
            return
        inside: Iterable[tuple[object, object]] = ()
        if isinstance(value, Mapping):
            inside = list(value.items())
        elif isinstance(value, (list, tuple, set)):
            inside = list(enumerate(value))
        elif hasattr(value, "__dict__") and not isinstance(
            value, (type, Tensor, nn.Module, torch.optim.Optimizer)
        ):
            inside = list(vars(value).items())
        for name, one in inside:
            look(one, f"{path}.{name}" if path else str(name), depth + 1)
        owner = getattr(value, "__self__", None)
        if owner is not None and not inspect.ismodule(owner):
            look(owner, path, depth + 1)

    look(step, "", 0)
    return found


def modules_of(step: object) -> list[nn.Module]:
    """The networks among what a step holds."""
    return list(named_parts(step, nn.Module).values())


def optimizers_of(step: object) -> dict[str, torch.optim.Optimizer]:
    """The optimizers among what a step holds, by name."""
    return named_parts(step, torch.optim.Optimizer)


def trained_bytes(step: object) -> int:
    """Bytes of the parameters that need a gradient."""
    parameters = {id(p): p for module in modules_of(step) for p in module.parameters()}
    return sum(p.nbytes for p in parameters.values() if p.requires_grad)


def batch_of(step: TrainingStep, example: Any, size: int, device: torch.device | str = "meta") -> Any:
    """A batch of `size` samples: by the step's own ``batch``, else like the example, or by the example's function.

    Of an example, tensors whose first axis is as long as that of its first tensor are made of the asked size.
    """
    if hasattr(step, "batch"):
        made = step.batch(size)
    elif callable(example):
        made = example(size)
    else:
        made = resized(example, size)
    return on_device(made, device)


def validates(step: object) -> bool:
    """Whether a step says what its validation is."""
    return callable(getattr(step, "validate", None))


def validation_batch_of(
    step: TrainingStep, example: Any, size: int, device: torch.device | str = "meta"
) -> Any:
    """A batch for ``validate``: of the step's ``validation_batch``, else as `batch_of`."""
    if hasattr(step, "validation_batch"):
        return on_device(step.validation_batch(size), device)
    return batch_of(step, example, size, device)


def on_device(batch: Any, device: torch.device | str) -> Any:
    """The batch with its tensors there."""
    return tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, batch)


def resized(example: Any, size: int) -> Any:
    """The nest of containers for another batch size, without data. Raises OwnStepError where none has a batch axis."""
    tensors = [x for x in tree_leaves(example) if isinstance(x, Tensor)]
    if not tensors or not tensors[0].dim():
        raise OwnStepError("the example has no tensor with a batch axis: give the step a method batch(size)")
    given = tensors[0].shape[0]

    def resize(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        shape = (size, *value.shape[1:]) if value.dim() and value.shape[0] == given else value.shape
        return torch.empty(shape, dtype=value.dtype, device="meta", requires_grad=value.requires_grad)

    return tree_map(resize, example)


def take_step(
    step: TrainingStep, batch: Any, before_backward: Callable[[Tensor], object] = lambda loss: None
) -> object:
    """What ``step(batch)`` returns, after one step.

    A step that returns a loss with a graph, and has neither computed gradients nor stepped an optimizer, has left that
    to its caller: backward, the step of its one optimizer, and gradients set to None.
    before_backward: told such a loss.
    Raises OwnStepError for such a step without an optimizer or with several, and for one that ends Python.
    """
    before = _gradients(step)
    with steps_counted() as counts:
        try:
            outcome = step.step(batch)
        except SystemExit as end:
            raise OwnStepError(f"{type(step).__name__} ends Python (sys.exit({end.code!r}))") from end
    left = isinstance(outcome, Tensor) and outcome.requires_grad and not counts and before == _gradients(step)
    if not left:
        return outcome
    assert isinstance(outcome, Tensor)
    optimizers = optimizers_of(step)
    if len(optimizers) != 1:
        held = f"{len(optimizers)} optimizers ({', '.join(optimizers)})" if optimizers else "no optimizer"
        raise OwnStepError(
            f"the step returns a loss, calls neither backward nor an optimizer, and holds {held}: the rest is done for "
            "a step with one"
        )
    [optimizer] = optimizers.values()
    before_backward(outcome.detach())
    outcome.backward()
    optimizer.step()
    optimizer.zero_grad()
    return outcome.detach()


def _gradients(step: object) -> list[tuple[int, int]]:
    """Which gradients there are, and how often each was written."""
    gradients = (
        p.grad
        for optimizer in optimizers_of(step).values()
        for g in optimizer.param_groups
        for p in g["params"]
    )
    return [(id(gradient), gradient._version) for gradient in gradients if gradient is not None]


@contextmanager
def steps_counted() -> Iterator[dict[int, int]]:
    """How many steps each optimizer made meanwhile, by its identity."""
    counts: dict[int, int] = {}

    def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1

    hook = register_optimizer_step_post_hook(count)
    try:
        yield counts
    finally:
        hook.remove()


def calls_until_stepped(
    step: TrainingStep,
    least: int,
    told: Callable[[list[str]], object] = lambda names: None,
    grows: Callable[[list[str]], object] = lambda names: None,
) -> Iterator[int]:
    """Numbers of calls, from 1: `least` of them, and on until each optimizer of the step has stepped twice and its
    state is as large as in the call before (layers are thawed one by one, a history fills).

    The caller makes one call for each number. told: the names of the optimizers that had not stepped by then. grows:
    of those whose state still grew.
    """
    waiting: list[str] = []
    growing: list[str] = []
    sizes: dict[str, int] = {}
    with steps_counted() as counts:
        for number in range(1, MOST_CALLS + 1):
            yield number
            waiting = [
                name
                for name, one in optimizers_of(step).items()
                if counts.get(id(_wrapped(one)), 0) < STEPS_OF_EACH
            ]
            before, sizes = sizes, {name: _state_numbers(one) for name, one in optimizers_of(step).items()}
            growing = [name for name, size in sizes.items() if number > 1 and size > before.get(name, 0)]
            if number >= least and not waiting and not growing:
                return
    told(waiting)
    grows([name for name in growing if name not in waiting])


def _state_numbers(optimizer: torch.optim.Optimizer) -> int:
    """How many numbers all tensors of an optimizer's state hold together."""
    states = _wrapped(optimizer).state.values()
    leaves = tree_leaves([dict(state) if isinstance(state, Mapping) else state for state in states])
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))


def _wrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside a wrapper of it, such as accelerate's."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    return optimizer


@contextmanager
def autocast_noted() -> Iterator[set[torch.dtype]]:
    """The dtypes of the autocast contexts that are opened meanwhile."""
    noted: set[torch.dtype] = set()
    enter = torch.autocast.__enter__

    def entered(self: Any) -> Any:
        if self._enabled:
            noted.add(self.fast_dtype)
        return enter(self)

    with mock.patch.object(torch.autocast, "__enter__", entered):
        yield noted


def only_part(step: object, kind: type, word: str) -> Any:
    """The one network or optimizer of a step that `train.py` trains. Raises OwnStepError, naming those there are."""
    found = named_parts(step, kind)
    if len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(f"{name} ({type(part).__name__})" for name, part in found.items())
    held = f"{len(found)} {word}s: {names}" if found else f"no {word}"
    raise OwnStepError(
        f"training.step: {type(step).__name__} holds {held}; train.py trains a step with one network and one optimizer"
    )
