"""The check on a GPU: its arithmetic by hand, and its run with processes that are made up."""

import itertools
import json
from types import SimpleNamespace

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.gpu_check import check as check_module
from swinmr_profiling.profiler.gpu_check.check import GpuCheck
from swinmr_profiling.profiler.gpu_check.combinations import Combination, dry_combinations, gpu_combinations
from swinmr_profiling.profiler.gpu_check.convolutions import same_without_benchmark
from swinmr_profiling.profiler.gpu_check.machine import SIDE, workspace_row
from swinmr_profiling.profiler.gpu_check.measured import ratios, summary, table, training_figures
from swinmr_profiling.profiler.gpu_check.predictions import interpolated
from swinmr_profiling.profiler.gpu_check.record import (
    ConvolutionCost,
    LibraryCosts,
    Measured,
    Predicted,
    PredictedSize,
    Prediction,
    Row,
)
from swinmr_profiling.profiler.gpu_check.reference import Network
from swinmr_profiling.profiler.gpu_check.subprocesses import PartFailedError
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.measure.measurement import DeviceMemory, Opened
from swinmr_profiling.profiler.record.blocks.run_description import Environment, Gpu
from swinmr_profiling.profiler.record.failures import Failure
from tests import made_profiles
from tests.profiler.run.test_training_steps import GIB, measured

MIB = 2**20
GPU = {"name": "Some GPU", "compute_capability": "9.0", "uuid": "abc", "total_bytes": 24 * GIB}
OOM = Failure("OOM", "OutOfMemoryError", True)
CONFIG = config_from_dict({"model": {"net_type": "swinir"}})


def predicted_row(size, reserved=None, allocated=None):
    bytes_ = {
        "allocated_bytes": size * GIB - 100 if allocated is None else allocated,
        "reserved_bytes": size * GIB if reserved is None else reserved,
        "validation_allocated_bytes": 300,
        "validation_reserved_bytes": 400,
    }
    general = {"live_bytes": 5, "phase": "backward", "operator": "mm", "workspace_bytes": 0}
    return PredictedSize.model_validate({**general, "default": bytes_, "expandable": bytes_})


def test_the_combinations_are_those_that_were_asked_for():
    combinations = gpu_combinations()
    assert 15 <= len(combinations) <= 18
    assert len({c.name for c in combinations}) == len(combinations)
    seen = {
        (c.config.system.mixed_precision, c.config.training.gradient_checkpointing)
        for c in combinations
        if c.config.model.net_type == "swinir"
    }
    assert {(False, "none"), (False, "light"), (False, "full"), ("bf16", "none"), ("bf16", "full")} <= seen
    modes = [c.mode for c in combinations]
    assert modes.count("out_of_memory") == modes.count("search") == 1
    assert modes.count("inference") == 2
    assert {c.allocator for c in combinations} == {"default", "expandable"}
    # What they promise to take fits the eight minutes, beside the predictions and the comparison.
    assert sum(c.takes_s for c in combinations) <= 440
    assert {c.mode for c in dry_combinations()} == set(modes)


def test_the_allocator_is_set_before_torch_is_imported():
    expandable = Combination("a", CONFIG, expandable=True).variables
    assert expandable == {
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
    # The default is the default whatever the user's shell sets.
    assert set(Combination("a", CONFIG).variables.values()) == {None}


def test_the_workspace_row_by_hand():
    """A result of 256 x 256 float32 is 262,144 bytes. 32 MiB kept by the first product, 1 MiB by the first bias."""
    result = SIDE * SIDE * 4

    def cost(kept, beside=0):
        return {"kept_bytes": kept, "peak_bytes": kept + result + beside}

    def row_of(plain_first, bias_first, version):
        sides = (
            LibraryCosts.model_validate({"context_bytes": None, **one}) for one in (plain_first, bias_first)
        )
        return workspace_row(*sides, Gpu.model_validate(GPU), version).to_json()

    plain_first = {
        "context_bytes": 500,
        "products": {
            "plain": cost(32 * MIB),
            "with_bias": cost(MIB),
            "with_bias_again": cost(0),
            "with_bias_bf16": cost(0),
            "backward": cost(33 * MIB),
        },
    }
    bias_first = {"products": {"plain": cost(0)}}
    row = row_of(plain_first, bias_first, "2.11.0+cu130")
    assert (row["torch_from"], row["capabilities"], row["backend"]) == ("2.11", [9], "cuda")
    assert (row["cublas_bytes"], row["cublaslt_bytes"], row["cublaslt_kept"]) == (32 * MIB, MIB, True)
    assert row["cublaslt_makes_cublas"] is True
    assert (row["context_bytes"], row["backward_thread_bytes"]) == (500, 33 * MIB)
    assert "Some GPU" in row["source"]
    # The other way round: given back after each product, and no workspace made by a bias.
    plain_first["products"]["with_bias"] = cost(0, beside=MIB)
    plain_first["products"]["with_bias_again"] = cost(0, beside=MIB)
    row = row_of(plain_first, {"products": {"plain": cost(32 * MIB)}}, "2.11.0")
    assert (row["cublaslt_bytes"], row["cublaslt_kept"], row["cublaslt_makes_cublas"]) == (MIB, False, False)


def test_between_and_beyond_the_sizes_of_a_prediction():
    assert predicted_row(1, 300).default.peak_reserved_bytes == 400  # validation takes more

    table = {size: predicted_row(size, 1000 * size, 900 * size) for size in (1, 2, 4)}
    found = interpolated(table, "expandable")
    # Between 2 and 4: 2700 allocated, and 400 that 4 reserves beside. Beyond: 90,000 allocated at 100, reserved 10 / 9.
    assert [found.reserved_bytes(size) for size in (1, 3, 4, 100)] == [1000, 3100, 4000, 100_000]


def row(status, **fields):
    """A row of which only this matters."""
    unknown = dict.fromkeys(("requested_batch_size", "batch_size", "predicted"))
    texts = dict.fromkeys(("name", "mode", "precision", "checkpointing"), "any")
    return Row(status=status, allocator="default", **{**unknown, **texts, **fields})


def test_ratios_and_their_summary_by_hand():
    figures = Measured(kind="", input_shape=[], allocated_bytes=102, reserved_bytes=110, requested_bytes=99)
    # Of the 99 requested 10 are cuBLAS's workspaces, which the live bytes of a trace are without: 99 / (90 + 10).
    prediction = Predicted(
        source="predicted", allocated_bytes=100, reserved_bytes=100, live_bytes=90, workspace_bytes=10
    )
    known = ratios(figures, prediction)
    found = known.to_json()
    assert found == {
        "allocated": 1.02,
        "reserved": 1.1,
        "requested": 0.99,
        "validation_allocated": None,
        "validation_reserved": None,
    }
    assert ratios(figures, Predicted(source=None)) is None
    other = known.model_copy(update={"allocated": 0.95, "reserved": None})
    rows = [row("measured", ratios=known), row("measured", ratios=other), row("not run")]
    result = summary(rows)
    assert (result["combinations"], result["measured"], result["not_run"]) == (3, 2, 1)
    # 2 % and 5 % off: median 3.5 %.
    assert result["allocated_default"].median == pytest.approx(0.035)
    assert result["allocated_default"].worst == pytest.approx(0.05)
    assert result["reserved_default"].num_runs == 1
    assert "allocated_expandable" not in result


@pytest.fixture
def checked(monkeypatch):
    """Runs a check on a made-up GPU with 20 GiB free; a batch of the made-up network takes 1 GiB a sample."""

    def run(
        combinations,
        *,
        answers=None,
        prediction=None,
        time_budget_s=480.0,
        probe_s=10.0,
        missing=(),
        cores=2,
        order=None,
    ):
        now = itertools.count()
        order = [] if order is None else order
        clock = SimpleNamespace(now=0.0)
        asked = []

        class Process:
            def __init__(self, environment=None):
                pass

            def ask(self, do, answer, timeout_s=None, **arguments):
                if do == "open":
                    content = made_profiles.environment(GPU) | {"packages": {"torch": "2.11.0"}}
                    return Opened("cuda:0", Environment.model_validate(content))
                return DeviceMemory(20 * GIB, 0, 24 * GIB)

            def __enter__(self):
                return self

            def __exit__(self, *exc_info):
                pass

        class Probes:
            def __init__(self, options):
                self.options = options

            def measure(self, size):
                next(now)
                asked.append((size, self.options.timeout_s))
                order.append(f"measure {size}")
                clock.now += probe_s
                answer = (answers or {}).get(size, measured(size))
                if isinstance(answer, Failure):
                    raise WorkerError(answer)
                return answer

            def __enter__(self):
                return self

            def __exit__(self, *exc_info):
                pass

        def ask_module(module, request, answer, timeout_s, environment=None):
            if module.endswith("predictions"):
                assert environment["CUDA_VISIBLE_DEVICES"] == ""
                order.append("predict")
                if prediction is not None:
                    raise PartFailedError(prediction)
                sizes = {size: predicted_row(size) for size in request.sizes}
                return Prediction(sizes=sizes, workspaces="a table", aligned=True)
            order.append(module.rpartition(".")[2])
            raise PartFailedError(f"{module} is not made up")

        monkeypatch.setattr(
            check_module.os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False
        )
        monkeypatch.setattr(check_module, "WorkerProcess", Process)
        monkeypatch.setattr(check_module, "TrainingProbes", Probes)
        monkeypatch.setattr(check_module, "ask_module", ask_module)
        monkeypatch.setattr(
            check_module.importlib.util, "find_spec", lambda name: None if name in missing else object()
        )
        network = Network(side=16, embed_dim=12, groups=1, batch_size=1)
        record = GpuCheck(
            combinations,
            device="cuda",
            time_budget_s=time_budget_s,
            reference=network,
            clock=lambda: clock.now,
        ).run()
        return json.loads(json.dumps(record.to_json())), asked

    return run


def test_each_measurement_stands_beside_its_prediction(checked):
    content, asked = checked([Combination("one", CONFIG, batch_size=4)])
    (row,) = content["combinations"]
    assert asked == [(4, 90.0)]
    assert row["measured"] == training_figures(measured(4)).to_json()
    assert row["predicted"]["reserved_bytes"] == 4 * GIB
    assert row["ratios"]["reserved"] == 1.0
    assert content["workspaces"]["status"] == "not run"
    typed = Row.model_validate(row)
    assert "4,096.0" in table([typed])
    assert " 1,234,567 " in table([typed.model_copy(update={"batch_size": 1_234_567})])


def test_a_batch_that_does_not_fit_is_halved_and_both_are_recorded(checked):
    content, asked = checked([Combination("large", CONFIG, batch_size=32)], answers={32: OOM, 16: OOM})
    row = content["combinations"][0]
    assert [size for size, _ in asked] == [32, 16, 8]
    assert (row["requested_batch_size"], row["batch_size"], row["status"]) == (32, 8, "measured")
    # Batch 1 has no half.
    content, asked = checked([Combination("large", CONFIG, batch_size=2)], answers={2: OOM, 1: OOM})
    assert ([size for size, _ in asked], content["combinations"][0]["status"]) == ([2, 1], "OOM")


def test_a_batch_that_is_known_not_to_fit_is_not_tried():
    """85 % of 20 GiB are 17: 16 samples of 1 GiB fit, 32 do not."""
    check = GpuCheck(
        [], device="cuda", time_budget_s=1, reference=Network(side=16, embed_dim=12, groups=1, batch_size=1)
    )
    check.record.usable_bytes = 20 * GIB
    table = {size: predicted_row(size) for size in (1, 2, 4, 8, 16, 32)}
    assert check._batch(Combination("large", CONFIG, batch_size=32), table) == 16
    assert check._batch(Combination("large", CONFIG, batch_size=32), {}) == 32


@pytest.mark.parametrize("cores", [2, 8])
def test_only_what_needs_the_gpu_comes_first(checked, cores):
    order = []
    combinations = [Combination(f"number {place}", CONFIG, batch_size=4) for place in range(2)]
    content, _ = checked(combinations, cores=cores, order=order)
    assert order[0] == "convolutions"
    assert order.count("predict") == 1  # one network
    if cores == 2:
        assert order.index("predict") > max(place for place, what in enumerate(order) if what == "measure 4")
    assert all(row["ratios"]["reserved"] == 1.0 for row in content["combinations"])


def test_a_slow_processor_measures_and_says_that_no_time_was_left_to_predict(checked):
    content, asked = checked([Combination("one", CONFIG, batch_size=4)], time_budget_s=20, probe_s=20)
    row = content["combinations"][0]
    assert (row["status"], len(asked)) == ("measured", 1)
    assert row["predicted"] == {"source": None, "reason": "no time was left"}


def test_the_combination_that_must_fail(checked):
    """1.3 x 20 GiB are 26: of the table's sizes 32 is the smallest that is sure to fail."""
    must_fail = [Combination("must fail", CONFIG, "out_of_memory")]
    content, asked = checked(must_fail, answers={32: OOM}, cores=8)
    row = content["combinations"][0]
    assert (row["status"], row["as_expected"], asked[0][0]) == ("OOM", True, 32)
    content, _ = checked(must_fail, cores=8)
    assert content["combinations"][0]["as_expected"] is False
    crash = Failure("crashed", "SIGSEGV", True)
    content, _ = checked(must_fail, answers={32: crash}, cores=8)
    assert content["combinations"][0]["as_expected"] is False


def test_what_does_not_fit_the_time_is_recorded_as_not_run(checked):
    combinations = [Combination(f"number {place}", CONFIG, batch_size=1) for place in range(4)]
    content, asked = checked(combinations, time_budget_s=45, probe_s=15)
    assert [row["status"] for row in content["combinations"]] == [
        "measured",
        "measured",
        "not run",
        "not run",
    ]
    assert content["combinations"][2]["reason"] == "15 s are left, and it takes about 20"
    # No process may take longer than the run has left.
    assert asked == [(1, 45), (1, 30)]
    assert content["summary"]["not_run"] == 2
    assert content["reference"]["status"] == "not run"


def test_a_missing_package_is_the_reason(checked):
    content, asked = checked([Combination("UNet", CONFIG, packages=("diffusers",))], missing=("diffusers",))
    assert (asked, content["combinations"][0]["reason"]) == ([], "diffusers is not installed")


def test_without_a_prediction_it_is_measured_all_the_same(checked):
    content, _ = checked(
        [Combination("one", CONFIG, batch_size=4)], prediction="RuntimeError: no meta kernel"
    )
    row = content["combinations"][0]
    assert row["predicted"] == {"source": None, "reason": "RuntimeError: no meta kernel"}
    assert (row["status"], row["ratios"]) == ("measured", None)
    assert " - " in table([Row.model_validate(row)])


def test_the_question_of_cudnn_benchmark_by_hand():
    def row(size, **more):
        common = {"layer": "3 x 3", "kind": "forward", "precision": "float16", "channels_last": False}
        given = {**common, "benchmark": True, "bytes": size, "predicted_bytes": 0, **more}
        return ConvolutionCost(**given)

    assert same_without_benchmark([row(10, benchmark=False), row(10, benchmark=True)])
    assert not same_without_benchmark([row(0, benchmark=False), row(10, benchmark=True)])
    # fp32 and channels-last are not part of the question.
    others = [row(0, precision="float32"), row(1, precision="float32"), row(2, channels_last=True)]
    assert same_without_benchmark([*others, row(3, channels_last=True)])
