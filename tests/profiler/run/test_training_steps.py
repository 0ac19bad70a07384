"""The sweep of training over the batch sizes, and its blocks, with probes whose answers are scripted."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest

from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.measure.measurement import StepPeaks
from swinmr_profiling.profiler.measure.measurement_blocks import failed_training_block, training_block
from swinmr_profiling.profiler.record.blocks.batch import FailedBatch
from swinmr_profiling.profiler.record.blocks.training import TrainingRun
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.run.steps import training_steps
from swinmr_profiling.profiler.run.steps.training_steps import (
    failed_training,
    measure_training,
    wants_training,
)
from tests.made_profiles import failed, predicted_training, profile, ran
from tests.training_profiles import MEASURED

MIB, GIB = 2**20, 2**30
OOM = Failure("OOM", "OutOfMemoryError: CUDA out of memory (in training: step 2 of 3)", True)
SHAPE = Failure("exception", "RuntimeError: mat1 and mat2 shapes cannot be multiplied")
POSSIBLY = Failure("exception", "possibly out of memory: CUBLAS_STATUS_ALLOC_FAILED", True, True)


def peaks(reserved):
    return StepPeaks(reserved - 3, reserved - 7, reserved)


def measured(batch_size, reserved=None, **changes):
    reserved = batch_size * GIB if reserved is None else reserved
    fields = {
        "batch_size": batch_size,
        "accumulation": 2,
        "input_shape": [batch_size, 1, 96, 96],
        "precision": "bf16",
        "checkpointing": "light",
        "step_ms": [900.0, 100.0, 300.0],
        "cold": peaks(reserved - 10),
        "warm": peaks(reserved),
        "validation": peaks(500),
        "device_used_bytes": 2 * reserved,
        "reserved_at_end_bytes": reserved,
        "opening_bytes": 444,
    }
    return replace(MEASURED, **{**fields, **changes})


class Probes:
    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def measure(self, size):
        self.asked.append(size)
        answer = self.answers.get(size) or measured(size)
        if isinstance(answer, Failure):
            raise WorkerError(answer, "Traceback of the network")
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass


class Context:
    """What the steps of a run share, without a command."""

    def __init__(self, sizes, device="cuda:0", **options):
        self.profile = Profile.model_validate(
            profile({size: ran(size, [1.0]) for size in sizes}, device=device)
        )
        self.stream = io.StringIO()
        self.console = Console(self.stream)
        self.device_kind = device.partition(":")[0]
        self.training_input_shape = [1, 1, 96, 96]
        self.closed, self.saved = [], 0
        self.session = SimpleNamespace(close=lambda: self.closed.append(True))
        training = SimpleNamespace(**{"enabled": True, "measure": None, "steps": 3, **options})
        self.options = SimpleNamespace(training=training)

    def warn(self, warning):
        self.profile.warn(warning)

    def save(self):
        self.saved += 1


@pytest.fixture
def run(monkeypatch):
    def measure(answers, sizes=(1, 2, 4, 8), context=None):
        context = context or Context(sizes)
        probes = Probes(answers)
        monkeypatch.setattr(training_steps, "_open_probes", lambda context: probes)
        measure_training(context, list(sizes))
        blocks = {int(size): block.training for size, block in context.profile.batch_profiling.items()}
        return context, probes, blocks

    return measure


def test_every_size_gets_its_block(run):
    context, probes, blocks = run({})
    assert probes.asked == [1, 2, 4, 8]
    assert context.closed == [True]  # the network of the inference sweep is off the device first
    assert context.saved == 4
    assert blocks[8] == training_block(measured(8))
    assert "8,192.00 MB (peak of training, 8 x 1 x 96 x 96)" in context.stream.getvalue()
    assert "Validation of 1 x 1 x 256 x 256" in context.stream.getvalue()


def test_the_block_by_hand():
    block = training_block(measured(4, 10_000, cold=peaks(12_000)))
    assert (block.source, block.num_runs, block.steps_run) == ("measured", 3, 3)
    assert (block.peak_bytes, block.requested_peak_bytes, block.peak_reserved_bytes) == (
        11_997, 11_993, 12_000,
    )  # fmt: skip
    assert (block.cold_peak_bytes, block.warm_peak_bytes) == (11_997, 9_997)
    # Two micro-batches of 4 in the median of 100 and 300 ms; the first step is left out.
    assert block.images_per_second == pytest.approx(2 * 4 / 0.2)
    assert block.validation.to_json() == {
        "input_shape": [1, 1, 256, 256],
        "allocated_bytes": 497,
        "requested_bytes": 493,
        "reserved_bytes": 500,
    }
    assert block.context_bytes == 444
    for key in (
        "live_bytes",
        "live_interval_bytes",
        "reserved_interval_bytes",
        "by_category",
        "workspace_bytes",
        "ddp_bucket_bytes",
    ):
        assert getattr(block, key) is None
    # Where NVML knows the process, its context is what it holds beside the allocator.
    assert training_block(measured(4, 10_000, process_bytes=10_450)).context_bytes == 450
    assert training_block(measured(4, finite=False)).assumptions == [
        "a loss was not finite: random inputs, random weights"
    ]


def test_out_of_memory_stops_larger_sizes(run):
    _, probes, blocks = run({4: OOM})
    assert probes.asked == [1, 2, 4]
    assert blocks[4] == failed_training_block(OOM, [4, 1, 96, 96])
    assert blocks[8].error == "skipped"
    assert blocks[8].detail == "training at batch 4 was out of memory"


def test_inference_that_was_out_of_memory_needs_no_training(run):
    context = Context((1, 2))
    context.profile.batch_profiling["2"] = FailedBatch.model_validate(failed(2))
    _, probes, blocks = run({}, (1, 2), context)
    assert probes.asked == [1]
    assert blocks[2].error == "skipped"
    assert context.profile.batch_profiling["2"].error == "OOM"


def test_report_10_a_shape_error_is_shown_as_itself_and_the_others_go_on(run, capsys):
    context, probes, blocks = run({2: SHAPE})
    assert probes.asked == [1, 2, 4, 8]
    assert (blocks[2].error, blocks[2].detail) == ("exception", SHAPE.detail)
    assert "Traceback of the network" in capsys.readouterr().err
    assert failed_training(context.profile.training) == [2]


def test_a_library_failure_is_memory_after_a_smaller_size_trained(run):
    context, _, blocks = run({4: POSSIBLY})
    assert (blocks[4].error, blocks[8].error) == ("OOM", "skipped")
    assert blocks[4].detail.endswith("(batch 2 ran)")
    assert failed_training(context.profile.training) == []
    _, _, blocks = run({1: POSSIBLY})
    assert blocks[1].error == "exception"


def test_memory_that_falls_is_a_failed_measurement(run):
    """yolov5's falling series (report 2): the size that took less than its smaller neighbour has no figures."""
    context, _, blocks = run({4: measured(4, 1 * GIB)})
    assert blocks[4].error == "exception"
    assert blocks[4].detail == (
        "failed measurement: memory falls from 2,048 MiB at batch 2 to 1,024 MiB at batch 4"
    )
    assert isinstance(blocks[8], TrainingRun)
    assert failed_training(context.profile.training) == [4]


def test_report_12_a_spike_of_the_first_step_is_told(run):
    context, _, blocks = run({2: measured(2, cold=peaks(3 * GIB)), 4: measured(4, retries=2)})
    assert [(w.code, w.batch_size) for w in context.profile.warnings] == [
        ("training_cold_spike", 2),
        ("training_retries", 4),
    ]
    assert (blocks[2].cold_peak_bytes, blocks[2].warm_peak_bytes) == (3 * GIB - 3, 2 * GIB - 3)
    assert blocks[4].retries == 2


def test_a_resumed_profile_keeps_what_was_measured(run):
    context = Context((1, 2, 4))
    done = training_block(measured(1))
    killed = failed_training_block(Failure("killed", "SIGKILL"), [2, 1, 96, 96])
    predicted = TrainingRun.model_validate(predicted_training(4, 4000))
    for size, block in ((1, done), (2, killed), (4, predicted)):
        context.profile.set_training(size, block)
    _, probes, blocks = run({}, (1, 2, 4), context)
    assert probes.asked == [2, 4]
    assert blocks[1] == done


def test_the_single_image_keeps_to_inference(run):
    context = Context((1,))
    single = context.profile.single_image = context.profile.batch_profiling["1"]
    run({}, (1,), context)
    assert "training" not in single.to_json()


@pytest.mark.parametrize(
    ("device", "wish", "expected"),
    [
        ("cuda:0", None, True),
        ("cuda:0", False, False),
        ("cpu", None, False),
        ("cpu", True, True),
    ],
)
def test_where_training_is_measured(device, wish, expected):
    context = Context((1,), device)
    context.options.training.measure = wish
    assert wants_training(context) is expected
