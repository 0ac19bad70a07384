"""Complex numbers: a MAC is a real multiply-add, a complex multiply-add is four of them.

Which operators are complex is told by the tensors that they get. Convolutions are the exception: above any
dispatch mode PyTorch composes a complex one of three real ones (Gauss's trick), with x = a + ib and w = v + iu:

    p = a * v,  q = b * u,  r = (a + b) * (v + u)    and    x * w = p - q + i (r - p - q)

So a mode sees three real convolutions where four are to be counted. The third is recognised, and counts twice.
"""

import re
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

REAL_PER_COMPLEX = 4
# How often each real MAC of the third convolution counts.
THIRD_COUNTS = 2
# Where a node that another thread made says whether it is of a third convolution.
IS_THIRD = "_counted_third"

_LETTERS = {
    "aten::view_as_real": "V",
    "aten::select": "S",
    "aten::add": "A",
    "aten::convolution": "C",
    "aten::_convolution": "C",
}
_BACKWARD = "aten::convolution_backward"
# The parts of input and weight (and bias); the first and the second convolution; the sums; the third.
_COMPOSED = re.compile(r"(?P<parts>[VS]+)(?P<first_two>C[CA]*C)A+C+$")
_LONGEST = 48


def has_complex(values: Any) -> bool:
    """Whether one of an operator's arguments is a complex tensor, or a list with one."""
    return any(
        value.is_complex()
        if isinstance(value, torch.Tensor)
        else isinstance(value, (list, tuple)) and has_complex(value)
        for value in values
    )


def complex_as_one(macs: int, complex_macs: int) -> int:
    """MACs of which ``complex_macs`` are of complex numbers, with one for each complex multiply-add instead of four."""
    return macs - complex_macs + complex_macs // REAL_PER_COMPLEX


class ComposedConvolutions:
    """Tells the third convolution of a complex one, in the forward and in the backward. One per thread.

    The operators of one composed convolution come from one and the same call in Python, by which they are told
    from a user's own products of real and imaginary parts: those are real operators and count as such. (A traced
    or scripted network is one call from Python as a whole: there the order of operators decides alone.)
    """

    def __init__(self) -> None:
        self._call: tuple[CodeType, int] | None = None
        self._trail = ""
        # Autograd's numbers of the nodes of third convolutions, and the next number at the operator before.
        self._third_nodes: set[int] = set()
        self._next_number = 0
        self.in_other_threads = False

    def is_third(self, name: str) -> bool:
        """Whether the operator that has just run is a third convolution or its gradient. Call it for each operator."""
        letter = _LETTERS.get(name)
        is_asked = letter is not None or name == _BACKWARD
        if not (is_asked and (letter == "V" or self._trail or self._third_nodes or self.in_other_threads)):
            # The usual case: no complex number anywhere so far.
            return False
        call = call_from_python()
        third = self._is_of_third_node() if call is None else self._ends_composition(call, letter)
        number = torch._C._autograd._get_sequence_nr()
        if third:
            # Its nodes, if gradients are wanted, were made since the operator before: one, or one per torch.func.grad.
            self._third_nodes.update(range(self._next_number, number))
        self._next_number = number
        return third

    def _is_of_third_node(self) -> bool:
        node = torch._C._current_autograd_node()
        if self.in_other_threads and (noted := getattr(node, "metadata", {}).get(IS_THIRD)) is not None:
            return bool(noted)
        return self.has_third(node)

    def has_third(self, node: Any) -> bool:
        """Whether a node of this thread is of a third convolution."""
        return hasattr(node, "_sequence_nr") and node._sequence_nr() in self._third_nodes

    def _ends_composition(self, call: tuple[CodeType, int], letter: str | None) -> bool:
        if call != self._call:
            self._call, self._trail = call, ""
        self._trail = (self._trail + (letter or ""))[-_LONGEST:]
        if "V" not in self._trail:
            self._trail = ""
        found = _COMPOSED.search(self._trail)
        if found is None or found["parts"].count("V") < 2 or found["parts"].count("S") < 4:
            return False
        # Forward-mode differentiation adds two products to each: of either factor by the other one's tangent.
        each = 3 if torch.autograd.forward_ad._current_level >= 0 else 1
        return found["first_two"].count("C") == 2 * each


def call_from_python() -> tuple[CodeType, int] | None:
    """The place in Python code from which the running operator was called; None if autograd's engine called it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_engine_run_backward":
            return None
        # Between the caller and a mode stand this counter, other modes, and what torch wraps them in.
        if not (code.co_name == "__torch_dispatch__" or code.co_filename.startswith(_BETWEEN)):
            return code, frame.f_lasti
        frame = frame.f_back
    # A thread of the engine's own has no Python code beneath.
    return None


# All of counting/.
_HERE = str(Path(__file__).resolve().parent.parent)
_TORCH = str(Path(torch.__file__).resolve().parent)
_BETWEEN = (
    _HERE,
    str(Path(_TORCH, "_dynamo")),
    str(Path(_TORCH, "_compile.py")),
    str(Path(_TORCH, "_ops.py")),
)
