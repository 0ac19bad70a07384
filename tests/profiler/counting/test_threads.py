"""Work that a forward hands to Python threads is counted, or listed where it cannot be followed."""

import asyncio
import functools
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.profiler.counting import count_forward

X = torch.zeros(5, 8)
ONE = 5 * 8 * 8  # MACs of one Linear(8, 8) on X


class Network(nn.Module):
    """Two layers, called as ``way(network, x)`` calls them."""

    def __init__(self, way):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.way = way

    def forward(self, x):
        return self.way(self, x)


def thread(net, x):
    results = {}
    threads = [
        threading.Thread(target=lambda name=name: results.update({name: getattr(net, name)(x)}))
        for name in "ab"
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return results["a"] + results["b"]


class Worker(threading.Thread):
    def __init__(self, layer, x):
        super().__init__()
        self.layer, self.x = layer, x

    def run(self):
        self.result = self.layer(self.x)


def subclass(net, x):
    workers = [Worker(net.a, x), Worker(net.b, x)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    return sum(one.result for one in workers)


def executor_submit(net, x):
    with ThreadPoolExecutor(2) as pool:
        return sum(task.result() for task in [pool.submit(net.a, x), pool.submit(net.b, x)])


def executor_map(net, x):
    with ThreadPoolExecutor(1) as pool:
        return sum(pool.map(lambda layer: layer(x), [net.a, net.b]))


def to_thread(net, x):
    async def both():
        return await asyncio.gather(asyncio.to_thread(net.a, x), asyncio.to_thread(net.b, x))

    return sum(asyncio.run(both()))


def functions_only(net, x):
    with ThreadPoolExecutor(2) as pool:
        return pool.submit(F.linear, x, net.a.weight).result() @ net.b.weight


def nested(net, x):
    with ThreadPoolExecutor(2) as outer, ThreadPoolExecutor(2) as inner:
        return outer.submit(lambda: inner.submit(net.a, x).result() + net.b(x)).result()


POOL_METHODS = {
    "apply": lambda pool, net, x: [pool.apply(net.a, (x,)), pool.apply(net.b, (x,))],
    "apply_async": lambda pool, net, x: [pool.apply_async(layer, (x,)).get() for layer in (net.a, net.b)],
    "map": lambda pool, net, x: pool.map(lambda layer: layer(x), [net.a, net.b]),
    "map_async": lambda pool, net, x: pool.map_async(lambda layer: layer(x), [net.a, net.b]).get(),
    "starmap": lambda pool, net, x: pool.starmap(lambda layer, y: layer(y), [(net.a, x), (net.b, x)]),
    "starmap_async": lambda pool, net, x: pool.starmap_async(
        lambda layer, y: layer(y), [(net.a, x), (net.b, x)]
    ).get(),
    "imap": lambda pool, net, x: pool.imap(lambda layer: layer(x), [net.a, net.b]),
    "imap_unordered": lambda pool, net, x: pool.imap_unordered(lambda layer: layer(x), [net.a, net.b]),
}


def in_pool(method, net, x):
    with ThreadPool(2) as pool:
        return sum(POOL_METHODS[method](pool, net, x))


WAYS = {
    "threading.Thread": thread,
    "a subclass of Thread": subclass,
    "ThreadPoolExecutor.submit": executor_submit,
    "ThreadPoolExecutor.map": executor_map,
    "asyncio.to_thread": to_thread,
    "functions instead of modules": functions_only,
    "threads within threads": nested,
    **{f"ThreadPool.{name}": functools.partial(in_pool, name) for name in POOL_METHODS},
}


def state_of_threading() -> list:
    owners = (threading.Thread, ThreadPoolExecutor, ThreadPool)
    return [{name: id(value) for name, value in vars(owner).items()} for owner in owners]


@pytest.mark.parametrize("real", [False, True], ids=["meta", "cpu"])
@pytest.mark.parametrize("way", WAYS)
def test_work_in_threads_is_counted(way, real):
    before = state_of_threading()

    def forward(net, x):
        if real:
            assert x.sum().item() == 0
        return WAYS[way](net, x)

    report = count_forward(Network(forward), (X,))
    assert (report.macs, report.uncounted_operators) == (2 * ONE, {})
    assert report.counted_on == ("cpu" if real else "meta")
    assert report.by_kind["linear"] == 2 * ONE
    if way != "functions instead of modules":
        assert [child["macs"] for child in report.by_module["children"]] == [ONE, ONE]
    assert state_of_threading() == before


def test_a_pool_made_before_is_followed_and_left_alone():
    with ThreadPoolExecutor(1) as executor, ThreadPool(1) as pool:
        executor.submit(torch.ones, 2).result()

        def forward(net, x):
            return executor.submit(net.a, x).result() + pool.apply(net.b, (x,))

        for _ in range(2):
            assert count_forward(Network(forward), (X,)).macs == 2 * ONE
        assert executor.submit(torch.utils._python_dispatch._len_torch_dispatch_stack).result() == 0
        assert pool.apply(torch.utils._python_dispatch._len_torch_dispatch_stack) == 0


def test_a_pool_whose_threads_start_within_the_count_is_not_under_it_afterwards():
    pools = []

    def forward(net, x):
        pools[:] = ThreadPoolExecutor(1), ThreadPool(1)
        return pools[0].submit(net.a, x).result() + pools[1].apply(net.b, (x,))

    assert count_forward(Network(forward), (X,)).macs == 2 * ONE
    depth = torch.utils._python_dispatch._len_torch_dispatch_stack
    with pools[0] as executor, pools[1] as pool:
        assert (executor.submit(depth).result(), pool.apply(depth)) == (0, 0)


def test_work_is_credited_to_the_module_that_handed_it_over():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Network(lambda net, x: functions_only(net, x))

        def forward(self, x):
            return self.inner(x)

    (inner,) = count_forward(Outer(), (X,)).by_module["children"]
    assert inner["own"] == {"linear": 2 * ONE}


def test_other_threads_of_the_process_are_none_of_the_counts_business():
    stop, started = threading.Event(), threading.Event()
    stranger = nn.Linear(8, 8)

    def work():
        while not stop.is_set():
            stranger(X)
            started.set()

    beside = threading.Thread(target=work)
    beside.start()
    try:
        started.wait()

        def forward(net, x):
            started.clear()
            started.wait()
            return net.b(net.a(x))

        report = count_forward(Network(forward), (X,))
        assert (report.macs, report.uncounted_operators, report.note) == (2 * ONE, {}, None)
        assert [child["macs"] for child in report.by_module["children"]] == [ONE, ONE]
    finally:
        stop.set()
        beside.join()


def test_many_threads_lose_no_multiply_add():
    def forward(net, x):
        with ThreadPoolExecutor(8) as pool:
            return sum(pool.map(lambda _: net.b(net.a(x)), range(200)))

    assert count_forward(Network(forward), (X,)).macs == 200 * 2 * ONE


@pytest.fixture
def eager_threads():
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_complex_convolutions_side_by_side():
    """Each thread's three real convolutions are taken together, and no other's."""
    conv = nn.Conv1d(2, 4, 3, padding=1, dtype=torch.complex64)

    def forward(net, x):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: net.conv(x), range(100)))

    net = Network(forward)
    net.conv = conv
    report = count_forward(net, (torch.zeros(1, 2, 10, dtype=torch.complex64),))
    assert report.macs == 100 * 4 * (10 * 4 * 2 * 3)
    assert report.macs_complex_as_one == 100 * (10 * 4 * 2 * 3)


def test_a_thread_that_reads_values_sends_the_whole_count_to_a_real_run():
    """On meta the thread fails where nobody hears it: without it half of the work would be missing."""

    def forward(net, x):
        results = []

        def work():
            y = net.a(x)
            results.append(net.b(y) if y.sum().item() < 1e9 else y)

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        return results

    report = count_forward(Network(forward), (X,))
    assert (report.macs, report.counted_on) == (2 * ONE, "cpu")
    assert report.note.startswith("counted in a real run on cpu: the model does not run on the meta device (")


def test_a_thread_that_fails_for_real_is_told_of(capfd):
    def forward(net, x):
        worker = threading.Thread(target=lambda: net.a(x)[100])
        worker.start()
        worker.join()
        return net.b(x)

    report = count_forward(Network(forward), (X,))
    assert report.macs == 2 * ONE
    assert "another thread raised IndexError" in report.note
    assert "Traceback" not in capfd.readouterr().err


def test_work_that_has_not_ended_is_listed():
    ended = threading.Event()

    def forward(net, x):
        threading.Thread(target=lambda: (ended.wait(), net.a(x)), name="late").start()
        return net.b(x)

    try:
        report = count_forward(Network(forward), (X,))
    finally:
        ended.set()
    assert report.macs == ONE
    assert report.uncounted_operators == {"unseen::thread late": 1}
    assert "had not ended" in report.note


def test_a_daemon_that_has_begun_to_work_is_listed():
    begun, ended = threading.Event(), threading.Event()

    def work(net, x):
        net.a(x)
        begun.set()
        ended.wait()

    def forward(net, x):
        threading.Thread(target=work, args=(net, x), name="aside", daemon=True).start()
        begun.wait()
        return net.b(x)

    try:
        report = count_forward(Network(forward), (X,))
    finally:
        ended.set()
    assert (report.macs, report.uncounted_operators) == (2 * ONE, {"unseen::thread aside": 1})


def test_a_task_that_has_not_ended_is_listed():
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:

        def forward(net, x):
            pool.submit(ended.wait)
            return net.b(x)

        try:
            report = count_forward(Network(forward), (X,))
        finally:
            ended.set()
    assert report.uncounted_operators == {"unseen::task of a thread pool": 1}


def test_a_sleeping_monitor_is_no_work():
    ended = threading.Event()

    def forward(net, x):
        threading.Thread(target=ended.wait, daemon=True).start()
        return net.b(x)

    try:
        assert count_forward(Network(forward), (X,)).uncounted_operators == {}
    finally:
        ended.set()


class ServedByItsOwnThread(nn.Module):
    """A thread that was started with the module takes work from a queue: it cannot be followed."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(8, 8))
        self.work, self.results = queue.Queue(), queue.Queue()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while (x := self.work.get()) is not None:
            self.results.put(self.layer(x))

    def forward(self, x):
        self.work.put(x)
        return self.layer(self.results.get())


def test_modules_in_a_thread_that_cannot_be_followed_are_listed():
    module = ServedByItsOwnThread()
    try:
        report = count_forward(module, (X,))
    finally:
        module.work.put(None)
    assert report.macs == ONE
    assert report.uncounted_operators == {"unseen::Sequential": 1}
    assert "started before the count" in report.note
