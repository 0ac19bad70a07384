"""The batch for the machine's own GPU, with one that is made up: what others hold of it, and what a batch takes."""

import io
import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace

import jsonschema
import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES, workspaces_for
from swinmr_profiling.profiler.isolation.measuring_session import MeasureOptions
from swinmr_profiling.profiler.isolation.training_probes import ProbeOptions, TrainingProbes
from swinmr_profiling.profiler.isolation.worker_process import WorkerError
from swinmr_profiling.profiler.measure.measurement import DeviceMemory, StepPeaks
from swinmr_profiling.profiler.options.budget_options import Card
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.run.context import RunContext, RunOptions, TrainingOptions
from swinmr_profiling.profiler.run.steps.training_steps import choose_training_batch
from tests import training_profiles
from tests.conftest import REPOSITORY
from tests.training_profiles import MIB, memory_model, replayed

GIB = 2**30
NAME = "NVIDIA GeForce RTX 3090"
LIBRARIES = workspaces_for("2.14.1", "8.6")
OOM = Failure("OOM", "OutOfMemoryError: CUDA out of memory", True)
NO_ROOM = Failure("exception", "possibly out of memory: CUDA error: out of memory", True, True)


@dataclass
class Gpu:
    """24 GiB. A batch reserves 800 MiB and 2 GiB a sample, beside a context of 400 MiB.

    nvml: False where nobody can ask it. Its own figure of what is used has 450 MiB of the driver's in it, which CUDA's
    total has not. others_at: reading -> what others hold from then on. failures: batch -> failure.
    """

    others: int = 0
    total: int = 24 * GIB
    context: int = 400 * MIB
    needs: object = lambda batch: 800 * MIB + batch * 2 * GIB
    nvml: bool = True
    others_at: dict = field(default_factory=dict)
    failures: dict = field(default_factory=dict)
    tried: list = field(default_factory=list)
    reads: int = 0
    processes: int = 0

    def used(self, uuid):
        assert uuid == "abc"
        return 450 * MIB + self.others + self.processes * self.context if self.nvml else None

    def start(self, environment):
        self.processes += 1
        return _Process(self)

    def probes(self, context):
        options = ProbeOptions(
            config_from_dict({"model": {"net_type": "swinir"}}),
            "cuda:0",
            gpu_uuid="abc",
            assumed_context_bytes=LIBRARIES.context_bytes,
        )
        return TrainingProbes(options, self.start, self.used)


class _Process:
    def __init__(self, gpu):
        self.gpu = gpu

    def ask(self, do, answer, timeout_s=None, on_progress=lambda progress: None, **arguments):
        gpu = self.gpu
        if do in gpu.failures:
            raise WorkerError(gpu.failures[do])
        if do == "device_memory":
            gpu.reads += 1
            gpu.others = gpu.others_at.get(gpu.reads, gpu.others)
            free = gpu.total - gpu.others - gpu.context
            return DeviceMemory(free, 0, gpu.total)
        return self.train(arguments["batch_size"]) if do == "train" else None

    def train(self, batch):
        gpu, reserved = self.gpu, self.gpu.needs(batch)
        gpu.tried.append(batch)
        if batch in gpu.failures:
            raise WorkerError(gpu.failures[batch])
        if gpu.context + reserved > gpu.total - gpu.others:
            raise WorkerError(OOM)
        peaks = StepPeaks(reserved - MIB, reserved - MIB, reserved)
        return replace(
            training_profiles.MEASURED,
            batch_size=batch,
            input_shape=[batch, 1, 96, 96],
            cold=peaks,
            warm=peaks,
            device_used_bytes=gpu.others + gpu.context + reserved,
            device_total_bytes=gpu.total,
            reserved_at_end_bytes=reserved,
        )

    def close(self):
        self.gpu.processes -= 1


# As the made-up GPU needs it: 20 cached, 780 fixed, 2048 a sample.
MODEL = memory_model(settings=[replayed(780, 2048, is_config=True)])


def choose(gpu, model=MODEL, swept=None, **training):
    """The recommendations and the search's record, of a profile that the schema accepts."""
    content = training_profiles.profile(
        model=model, blocks=swept, gpu=training_profiles.gpu_of(gpu.total // MIB)
    )
    content["environment"]["gpu"]["uuid"] = "abc"
    content["environment"]["packages"]["torch"] = "2.14.1"
    profile = Profile.model_validate(content)
    session = SimpleNamespace(close=lambda: None, process=None)
    saved = []
    result = SimpleNamespace(save=lambda content: saved.append(content) or True)
    options = RunOptions(MeasureOptions(), training=TrainingOptions(**training))
    stream = io.StringIO()
    context = RunContext(options, session, profile, Console(stream), result)
    choose_training_batch(context, gpu.probes)
    assert gpu.processes == 0
    written = json.loads(json.dumps({**content, **saved[-1], "status": "partial"}, allow_nan=False))
    schema = json.loads((REPOSITORY / "profiler/record/profile.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(written)
    return written["recommendation"]["training"], written["recommendation"]["search"], stream.getvalue()


def test_what_others_hold_is_no_budget_of_this_gpu():
    """8 of 24 GiB are held: 14.4 usable. Batch 7 runs, in 15.2, and is too large; the recommendation said 7."""
    gpu = Gpu(others=8 * GIB)
    (entry,), search, text = choose(gpu, swept={7: training_profiles.measured(14 * 1024 + 1200)})
    assert (search["batch_size"], entry["batch_size"], entry["largest_batch"]) == (6, 6, 6)
    assert (entry["source"], entry["verified"]) == ("measured", True)
    budget = entry["budget"]
    assert (budget["name"], budget["total_bytes"]) == (NAME, 24 * GIB)
    assert search["held_by_others_bytes"] == budget["reserved_elsewhere_bytes"] == 8 * GIB
    assert search["usable_bytes"] == budget["usable_bytes"] == 16 * GIB * 9 // 10
    # 800 MiB and 6 x 2 GiB, and the context.
    assert entry["needed_bytes"] == 12 * GIB + 1200 * MIB
    assert "with 8.00 GiB of this GPU held by others" in entry["reason"]
    assert "24.00 GiB in all, 8.00 GiB taken by others" in " ".join(text.split())


def test_neither_this_process_nor_the_driver_is_anybody_else():
    """24 x 0.9 = 21.6 GiB: 10 samples in 20 GiB and 1,200 MiB; 11 in 23.2."""
    (entry,), search, text = choose(Gpu())
    assert (search["held_by_others_bytes"], entry["budget"]["reserved_elsewhere_bytes"]) == (0, 0)
    assert (search["batch_size"], entry["batch_size"], entry["verified"]) == (10, 10, True)
    assert search["usable_bytes"] == entry["budget"]["usable_bytes"] == 24 * GIB * 9 // 10
    assert "others" not in entry["reason"] + text


def test_the_search_and_the_recommendation_agree_wherever_the_budget_lies():
    for mib in range(0, 20 * 1024, 777):
        (entry,), search, _ = choose(Gpu(others=mib * MIB))
        assert entry["budget"]["usable_bytes"] == search["usable_bytes"] == (24 * GIB - mib * MIB) * 9 // 10
        assert entry["batch_size"] == search["batch_size"]
        # 1,200 MiB beside 2 GiB a sample.
        samples = ((24 * 1024 - mib) * 0.9 - 1200) // 2048
        assert entry["batch_size"] == samples


def test_without_nvml_the_context_is_the_tables():
    """Before anything has run, the table's without the kernels that a run loads; what a batch needs has them."""
    gpu = Gpu(others=8 * GIB, context=LIBRARIES.context_bytes - KERNELS_BYTES, nvml=False)
    (entry,), search, _ = choose(gpu)
    assert search["held_by_others_bytes"] == 8 * GIB
    assert (search["batch_size"], entry["batch_size"]) == (6, 6)
    assert entry["needed_bytes"] == 12 * GIB + 800 * MIB + LIBRARIES.context_bytes


def test_what_the_command_line_reserves_is_nobody_elses_and_nobody_trains_in_it():
    # (24 - 3) x 0.9 = 18.9 GiB: 8 samples in 17.2; and what is held already is not reserved a second time.
    for others in (0, 2 * GIB, 3 * GIB):
        (entry,), search, _ = choose(Gpu(others=others), reserved_bytes=3 * GIB)
        assert (search["batch_size"], entry["batch_size"]) == (8, 8)
        assert entry["budget"]["reserved_elsewhere_bytes"] == search["held_by_others_bytes"] == 3 * GIB
    (entry,), _, _ = choose(Gpu(others=8 * GIB), reserved_bytes=3 * GIB)
    assert (entry["batch_size"], entry["budget"]["reserved_elsewhere_bytes"]) == (6, 8 * GIB)


def test_the_headroom_is_the_command_lines():
    # 24 x 0.7 = 16.8 GiB: 7 samples in 15.2.
    (entry,), search, _ = choose(Gpu(), headroom=Fraction(3, 10))
    assert (search["batch_size"], entry["batch_size"], search["headroom_share"]) == (7, 7, 0.3)


def test_what_others_hold_at_the_end_of_the_search_counts():
    gpu = Gpu(others_at={3: 8 * GIB})
    (entry,), search, _ = choose(gpu)
    assert search["budget_changes"] == [
        {"before_trial": 3, "from_bytes": 24 * GIB, "to_bytes": 16 * GIB},
    ]
    assert (search["batch_size"], entry["batch_size"]) == (6, 6)
    assert entry["budget"]["reserved_elsewhere_bytes"] == 8 * GIB


def test_a_batch_of_the_sweep_that_no_longer_fits_is_not_recommended():
    # It ran while the GPU was this process's alone.
    swept = {9: training_profiles.measured(20_000)}
    (entry,), _, _ = choose(Gpu(others=8 * GIB), swept=swept)
    assert entry["batch_size"] == 6


def test_what_was_out_of_memory_in_the_sweep_and_ran_in_the_search_has_run():
    (entry,), _, _ = choose(Gpu(), swept={2: training_profiles.failed(), 10: training_profiles.failed()})
    assert entry["batch_size"] == 10
    # And what the sweep measured is not lost to a trial that failed.
    gpu = Gpu(failures={2: OOM})
    (entry,), _, _ = choose(gpu, swept={2: training_profiles.measured(800 + 4096 + 400)})
    assert (entry["batch_size"], entry["verified"]) == (2, True)


def test_a_batch_that_the_search_saw_fail_is_not_proposed():
    # 10 are predicted to fit.
    (entry,), search, _ = choose(Gpu(failures={10: OOM}))
    assert search["batch_size"] == entry["batch_size"] == 9
    assert "batch 10 was out of memory" in entry["reason"]
    assert "may fit" not in entry["reason"]


def test_where_batch_1_fails_no_number_is_given():
    gpu = Gpu(failures={1: OOM})
    (entry,), search, _ = choose(gpu)
    assert (search["outcome"], entry["batch_size"]) == ("nothing_fits", None)
    assert (entry["failure"], entry["verified"]) == ("nothing_fits", False)
    assert entry["reason"].startswith("nothing fits: batch 1 was out of memory (OutOfMemoryError")
    broken = Failure("exception", "RuntimeError: shape mismatch")
    (entry,), search, _ = choose(Gpu(failures={1: broken}))
    assert (search["outcome"], entry["batch_size"], entry["failure"]) == (
        "failed",
        None,
        "failed_measurement",
    )


def test_a_gpu_without_room_for_a_process_is_held_by_others():
    (entry,), search, _ = choose(Gpu(failures={"device_memory": NO_ROOM}))
    assert (search["outcome"], search["held_by_others_bytes"]) == ("no_free_memory", 24 * GIB)
    assert (entry["batch_size"], entry["budget"]["usable_bytes"]) == (None, 0)
    assert "with 24.00 GiB of this GPU held by others" in entry["reason"]


def test_where_memory_cannot_be_read_only_what_is_reserved_is_taken_off():
    crashed = Failure("crashed", "the measuring process ended by SIGSEGV", True)
    gpu = Gpu(failures={"device_memory": crashed})
    (entry,), search, _ = choose(gpu, swept={4: training_profiles.measured(9_500)}, reserved_bytes=GIB)
    assert (search["outcome"], entry["batch_size"]) == ("failed", 4)
    assert entry["budget"]["reserved_elsewhere_bytes"] == GIB


def test_what_ran_on_one_device_is_not_verified_on_two():
    # Each of two holds 60 MiB of gradient buckets, which one has not: 7 x 2 GiB + 1,200 MiB would leave none of
    # 15.2 GiB + 30 MiB for them.
    total = 10 * (7 * 2 * GIB + 1230 * MIB) // 9 + 1
    (alone,), _, _ = choose(Gpu(total=total // MIB * MIB))
    (pair,), _, _ = choose(Gpu(total=total // MIB * MIB), devices=2)
    assert (alone["batch_size"], alone["verified"]) == (7, True)
    assert (pair["batch_size"], pair["verified"], pair["global_batch"]) == (6, False, 12)
    assert pair["needed_bytes"] == 12 * GIB + 1260 * MIB
    assert "it ran on one device, not on 2" in pair["reason"]


def test_an_accumulated_step_that_did_not_run_is_not_verified():
    (entry,), _, _ = choose(Gpu(), target_batch=20)
    assert (entry["batch_size"], entry["accumulate"], entry["verified"]) == (10, 2, False)


def test_the_gpu_itself_is_named_once_however_it_was_asked_for():
    own = [Card("GeForce RTX 3090", 24124 * MIB, "8.6"), Card("24GiB GPU", 24 * GIB)]
    other = [Card("GeForce RTX 4090", 24 * GIB, "8.9"), Card("25GiB GPU", 25 * GIB)]
    entries, _, _ = choose(Gpu(others=8 * GIB), cards=[*own, *other])
    assert [entry["budget"]["name"] for entry in entries] == [NAME, "GeForce RTX 4090", "25GiB GPU"]
    assert [entry["source"] for entry in entries] == ["measured", "predicted", "predicted"]
    # Nobody holds anything of a GPU that is elsewhere.
    assert [entry["budget"]["reserved_elsewhere_bytes"] for entry in entries] == [8 * GIB, 0, 0]


def test_a_network_that_cannot_be_predicted_is_searched_all_the_same():
    (entry,), search, _ = choose(Gpu(others=8 * GIB), model=None)
    assert (search["batch_size"], entry["batch_size"], entry["verified"]) == (6, 6, True)
    assert entry["levers"] == []


@pytest.mark.parametrize("nvml", [True, False])
def test_reserved_memory_that_falls_as_the_batch_grows_is_no_failed_measurement(nvml):
    """The allocator may reserve 15 % less for one batch more; what its tensors take is what must grow."""
    gpu = Gpu(nvml=nvml)

    class Process(_Process):
        def train(self, batch):
            answer = super().train(batch)
            peaks = replace(answer.cold, allocated_bytes=500 * MIB + batch * GIB)
            return replace(answer, cold=peaks, warm=peaks)

    gpu.start = lambda environment: (setattr(gpu, "processes", gpu.processes + 1), Process(gpu))[1]
    gpu.needs = lambda batch: (6 if batch == 1 else 4 + batch // 4) * GIB
    (entry,), search, _ = choose(gpu)
    assert search["outcome"] == "found"
    assert entry["batch_size"] == search["batch_size"]
