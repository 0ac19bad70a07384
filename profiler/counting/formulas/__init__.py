"""MACs of single operators, from shapes alone.

Unit: one MAC is one multiply-add of a matrix product, convolution or attention product (FLOPs = 2 x MACs).
Bias, activation, normalisation, softmax and interpolation are never counted here; masks are not discounted;
the zeros that pad a convolution are counted. The handles count multiply-adds of whatever numbers the tensors
hold; the engine takes those of complex numbers four times, because a MAC is a real multiply-add.

Every handle has the signature ``handle(out, *args, **kwargs)``: the operator's result, then its arguments as
the dispatcher passed them. It returns the MACs as an int, or a dict from kind ("linear", "attention",
"recomputed", ...) to MACs where one operator does several kinds of work, or None where the shapes do not tell
(the call is then listed as uncounted). Handles read shapes and never values, so that they work on meta
tensors; the packed variable-length attentions are the exception, which need the sequence lengths, and raise
NeedsValuesError for those on meta.
"""

Work = int | dict[str, int] | None


class NeedsValuesError(RuntimeError):
    """A formula has to read values of its arguments, and meta tensors have none: the call is to run for real."""
