"""Results that are remembered by shape: the same trace as when every operator is asked, and none for what is a view."""

import numpy as np
import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import cuda_on_meta
from swinmr_profiling.profiler.prediction.trace.remembered_results import RememberedResults
from swinmr_profiling.profiler.prediction.trace.storage_trace import StorageTrace

aten = torch.ops.aten


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


class Calls:
    """An operator that counts how often it is really asked."""

    def __init__(self, operator):
        self.operator, self._schema, self.count = operator, operator._schema, 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.operator(*args, **kwargs)


def test_the_same_shapes_are_asked_once_and_give_new_memory():
    results, relu = RememberedResults(), Calls(aten.relu.default)
    x = meta(2, 3, 4)
    first, second = (results.call(relu, (x,), {}) for _ in range(2))
    assert relu.count == 1
    assert second.shape == first.shape == (2, 3, 4)
    assert second.untyped_storage()._cdata != first.untyped_storage()._cdata
    # Another layout, type or number is another question.
    results.call(relu, (x.transpose(0, 1),), {})
    results.call(relu, (meta(2, 3, 4, dtype=torch.float16),), {})
    assert relu.count == 3
    add = Calls(aten.add.Tensor)
    for other in (1, 1.0, True):
        results.call(add, (x, other), {})
    assert add.count == 3


def test_several_results_keep_their_types_and_layouts():
    results, norm = RememberedResults(), Calls(aten.native_layer_norm.default)
    x = meta(2, 3, 8, dtype=torch.bfloat16)
    arguments = (x, [8], meta(8, dtype=torch.bfloat16), meta(8, dtype=torch.bfloat16), 1e-5)
    first, second = (results.call(norm, arguments, {}) for _ in range(2))
    assert norm.count == 1
    assert [(t.shape, t.dtype, t.stride()) for t in first] == [(t.shape, t.dtype, t.stride()) for t in second]


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten._unsafe_view.default, lambda: (meta(4, 6), [24])),  # a view, of which the schema says nothing
        (aten.view.default, lambda: (meta(4, 6), [24])),
        (aten.relu_.default, lambda: (meta(4, 6),)),
        (aten.split.Tensor, lambda: (meta(4, 6), 2)),
    ],
)
def test_views_and_writes_are_asked_each_time(operator, arguments):
    results, calls = RememberedResults(), Calls(operator)
    for _ in range(2):
        given = arguments()
        made = results.call(calls, given, {})
        made = made if isinstance(made, (tuple, list)) else [made]
        assert {t.untyped_storage()._cdata for t in made} == {given[0].untyped_storage()._cdata}
    assert calls.count == 2


def test_a_trace_is_the_same_as_when_every_operator_is_asked(monkeypatch):
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(2), nn.LayerNorm(64),
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), nn.Linear(64, 10),
    ).to("meta")  # fmt: skip

    def trace():
        with cuda_on_meta(), StorageTrace() as traced:
            for _ in range(2):
                traced.start_step()
                with torch.autocast("cuda", torch.float16):
                    out = network(meta(2, 3, 8, 8))
                out.float().sum().backward()
                network.zero_grad()
                del out
            return traced.finish(2, [])

    remembered = trace()
    monkeypatch.setattr(
        RememberedResults, "call", lambda self, function, args, kwargs: function(*args, **kwargs)
    )
    asked = trace()
    assert len(asked.sizes) > 100
    for name in ("sizes", "phases", "categories", "operators", "events"):
        assert np.array_equal(getattr(remembered, name), getattr(asked, name)), name
    assert remembered.operator_names == asked.operator_names


def test_what_more_than_shapes_decide_is_asked_each_time():
    results = RememberedResults()

    class Labelled(torch.Tensor):
        pass

    real = Calls(aten.relu.default)
    for given in (torch.ones(2), meta(2).as_subclass(Labelled)):
        for _ in range(2):
            results.call(real, (given,), {})
    assert real.count == 4


def test_lists_keywords_and_their_names_are_parts_of_the_question():
    results = RememberedResults()
    total = Calls(aten.sum.dim_IntList)
    x = meta(2, 3, 4)
    shapes = [
        tuple(results.call(total, (x, dims), kwargs).shape)
        for dims, kwargs in (([0], {}), ([1], {}), ([0, 1], {}), ([0], {"keepdim": True}), ([0], {}))
    ]
    assert shapes == [(3, 4), (2, 4), (4,), (1, 3, 4), (3, 4)]
    assert total.count == 4
    cat = Calls(aten.cat.default)
    for tensors in ([x], [x, x], [x, x, x], [x, x]):
        assert results.call(cat, (tensors,), {}).shape == (2 * len(tensors), 3, 4)
    assert cat.count == 3
    # Of two tensors, which one is the larger.
    mm = Calls(aten.mm.default)
    for pair in ((meta(2, 3), meta(3, 4)), (meta(4, 3), meta(3, 2)), (meta(2, 3), meta(3, 4))):
        assert results.call(mm, pair, {}).shape == (pair[0].shape[0], pair[1].shape[1])
    assert mm.count == 2
