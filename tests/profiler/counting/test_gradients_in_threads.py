"""Gradients of work that a forward hands to threads, and whose they are."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting import count_training_step, forward_backward
from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from tests.profiler.counting.test_threads import ONE, WAYS, Network, X, executor_submit, state_of_threading


def test_gradients_of_work_in_threads():
    report = count_training_step(forward_backward, Network(executor_submit), (X.clone().requires_grad_(),))
    assert report.training_macs == 3 * 2 * ONE
    assert [child["macs"] for child in report.by_module["children"]] == [3 * ONE, 3 * ONE]
    assert report.note is None


@pytest.mark.parametrize("way", WAYS)
def test_gradients_stand_at_the_modules_whose_forward_ran_in_a_thread(way):
    """Before and behind the threads the thread that is counted has numbers of its own, which theirs repeat.

    It is a new one, as in a new process: its nodes have the numbers from 0 on, like those of the network's threads.
    """

    def forward(net, x):
        return net.last(WAYS[way](net, net.first(x)))

    net = Network(forward)
    net.first, net.last = nn.Linear(8, 8), nn.Linear(8, 8)
    with ThreadPoolExecutor(1) as new:
        report = new.submit(count_training_step, forward_backward, net, (X,)).result()
    children = {child["name"]: child["macs"] for child in report.by_module["children"]}
    assert report.macs == 11 * ONE
    if way == "functions instead of modules":
        # By weights of the layers, but in no module: the network's own.
        assert children == {"a": 0, "b": 0, "first": 2 * ONE, "last": 3 * ONE}
    else:
        assert children == {"a": 3 * ONE, "b": 3 * ONE, "first": 2 * ONE, "last": 3 * ONE}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.T, x.T @ grad


class Own(nn.Module):
    """behind: what comes after the function of one's own."""

    def __init__(self, behind):
        super().__init__()
        self.weight, self.behind = nn.Parameter(torch.ones(8, 8)), behind

    def forward(self, x):
        return self.behind(Product.apply(x, self.weight))


@pytest.mark.parametrize("behind", [torch.relu, lambda y: y], ids=["with PyTorch's behind it", "last"])
def test_a_function_of_ones_own_in_a_thread(behind):
    def forward(net, x):
        with ThreadPoolExecutor(1) as pool:
            return net.b(pool.submit(net.own, net.a(x)).result())

    net = Network(forward)
    net.own = Own(behind)
    children = count_training_step(forward_backward, net, (X,)).by_module["children"]
    assert {child["name"]: child["macs"] for child in children} == {
        "a": 2 * ONE,
        "b": 3 * ONE,
        "own": 3 * ONE,
    }


def test_a_function_of_ones_own_whose_result_waits():
    """A function of PyTorch comes between it and the one that takes its result."""

    class Waits(Own):
        def forward(self, x):
            y = Product.apply(x, self.weight)
            return x.relu() + y

    def forward(net, x):
        with ThreadPoolExecutor(1) as pool:
            return net.b(pool.submit(net.own, net.a(x)).result())

    net = Network(forward)
    net.own = Waits(None)
    # In a new thread, whose numbers begin as those of the network's thread do.
    with ThreadPoolExecutor(1) as new:
        report = new.submit(count_training_step, forward_backward, net, (X,)).result()
    macs = {child["name"]: child["macs"] for child in report.by_module["children"]}
    assert macs == {"a": 2 * ONE, "b": 3 * ONE, "own": 3 * ONE}


def test_a_function_of_ones_own_that_is_all_that_a_thread_does():
    """No module's: the network's own, whatever module the counted thread was in at that number."""

    def forward(net, x):
        with ThreadPoolExecutor(1) as pool:
            return net.b(pool.submit(Product.apply, net.a(x), net.weight).result())

    net = Network(forward)
    net.weight = nn.Parameter(torch.ones(8, 8))
    tree = count_training_step(forward_backward, net, (X,)).by_module
    assert {child["name"]: child["macs"] for child in tree["children"]} == {"a": 2 * ONE, "b": 3 * ONE}
    assert tree["macs"] == 8 * ONE


def test_a_function_of_ones_own_before_a_module_of_the_same_thread():
    def forward(net, x):
        with ThreadPoolExecutor(1) as pool:
            return net.b(pool.submit(lambda y: net.c(Product.apply(y, net.weight)), net.a(x)).result())

    net = Network(forward)
    net.c, net.weight = nn.Linear(8, 8), nn.Parameter(torch.ones(8, 8))
    tree = count_training_step(forward_backward, net, (X,)).by_module
    macs = {child["name"]: child["macs"] for child in tree["children"]}
    assert macs == {"a": 2 * ONE, "b": 3 * ONE, "c": 3 * ONE}
    assert tree["macs"] == 11 * ONE


def test_gradients_of_complex_convolutions_in_threads():
    """Four real ones for each, in forward and backward, though the thread that runs the backward saw none of them."""
    conv = nn.Conv1d(2, 4, 3, padding=1, dtype=torch.complex64)

    def forward(net, x):
        with ThreadPoolExecutor(2) as pool:
            return sum(task.result() for task in [pool.submit(net.conv, x) for _ in range(3)])

    net = Network(forward)
    net.conv = conv
    x = torch.zeros(1, 2, 10, dtype=torch.complex64, requires_grad=True)
    report = count_training_step(forward_backward, net, (x,))
    assert report.macs == 3 * 3 * 4 * (10 * 4 * 2 * 3)
    assert report.macs_complex_as_one == 3 * 3 * (10 * 4 * 2 * 3)


def test_threads_do_not_disturb_whose_gradients_are_whose():
    """Every thread has autograd's numbers anew; here the thread's own gradients are not asked for."""

    def forward(net, x):
        y = net.a(x)
        with ThreadPoolExecutor(1) as pool:
            aside = pool.submit(net.b, x).result().detach()
        return net.c(y) + aside

    net = Network(forward)
    net.c = nn.Linear(8, 8)
    children = count_training_step(forward_backward, net, (X,)).by_module["children"]
    # Forward and weight; forward; forward, weight and input.
    assert [(child["name"], child["macs"]) for child in children] == [
        ("a", 2 * ONE),
        ("b", ONE),
        ("c", 3 * ONE),
    ]


def test_two_counts_at_once():
    """The wrapped methods are restored with the last of them, and each counts its own."""
    before, inside = state_of_threading(), threading.Barrier(2)

    def forward(net, x):
        inside.wait(30)
        return executor_submit(net, x)

    # Not by count_forward, which also keeps the process's random numbers.
    def count(results):
        net = Network(forward)
        with torch.no_grad(), CountingMode(ModuleTracker(net)) as mode:
            net(X)
        results.append(sum(mode.tallies.by_kind.values()))

    results = []
    counts = [threading.Thread(target=count, args=(results,)) for _ in range(2)]
    for one in counts:
        one.start()
    for one in counts:
        one.join()
    assert results == [2 * ONE, 2 * ONE]
    assert state_of_threading() == before
