"""Probes in fresh processes, with processes that are made up: who is asked what, and what failures become."""

from dataclasses import replace

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.allocator.workspaces import KERNELS_BYTES
from swinmr_profiling.profiler.isolation.training_probes import (
    ProbeOptions,
    TrainingProbes,
    needed_bytes,
)
from swinmr_profiling.profiler.isolation.worker_process import Progress, WorkerError
from swinmr_profiling.profiler.measure.measurement import DeviceMemory, StepPeaks
from swinmr_profiling.profiler.record.failures import Failure
from swinmr_profiling.profiler.record.search_record import MemoryNow, MemoryReadError
from tests.training_profiles import MEASURED

CONFIG = config_from_dict({"model": {"net_type": "swinir"}, "system": {"seed": 7, "threads": 2}})
OOM = Failure("OOM", "OutOfMemoryError: CUDA out of memory", needs_new_process=True)
NO_ROOM = Failure("exception", "possibly out of memory: CUDA error: out of memory", True, True)


def measured(batch_size, reserved=(1000, 1100, 900), retries=0, **changes):
    cold, warm, validation = (StepPeaks(size - 50, size - 60, size) for size in reserved)
    return replace(
        MEASURED,
        **{
            "batch_size": batch_size,
            "cold": cold,
            "warm": warm,
            "validation": validation,
            "retries": retries,
            "reserved_at_end_bytes": warm.reserved_bytes,
            **changes,
        },
    )


class Processes:
    """Starts made-up processes and keeps what each was asked."""

    def __init__(self, failures=None, stages=("setting up", "step 1 of 3")):
        self.failures, self.stages = failures or {}, stages
        self.log = []
        self.open = 0

    def start(self, environment):
        self.open += 1
        self.log.append(("start", environment))
        return _Process(self)


class _Process:
    def __init__(self, owner):
        self.owner, self.trained = owner, False

    def ask(self, do, answer, timeout_s=None, on_progress=lambda progress: None, **arguments):
        self.owner.log.append((do, arguments))
        if do == "train":
            assert not self.trained, "a second training in one process"
            self.trained = True
            for stage in self.owner.stages:
                on_progress(Progress(stage=stage))
        if do in self.owner.failures:
            raise WorkerError(self.owner.failures[do], "Traceback ...")
        answers = {"device_memory": DeviceMemory(700, 20, 1000)}
        return measured(arguments["batch_size"]) if do == "train" else answers.get(do)

    def close(self):
        self.owner.open -= 1
        self.owner.log.append(("close", None))


def probes(processes, used=lambda uuid: None, **options):
    return TrainingProbes(ProbeOptions(CONFIG, "cuda:0", **options), processes.start, used)


def asked(processes):
    return [name for name, _ in processes.log]


def test_report_11_each_probe_begins_in_a_clean_process():
    """pytorch 18853: a retry inside `except` keeps the tensors alive; here nothing outlives a probe."""
    processes = Processes()
    with probes(processes) as under_test:
        under_test.probe(1)
        processes.failures["train"] = OOM
        assert under_test.probe(64).failure.error == "OOM"
        # The process that ran out of memory is gone before the next probe's is there.
        assert processes.open == 0
        del processes.failures["train"]
        under_test.probe(2)
    assert asked(processes) == ["start", "open", "build", "train", "close"] * 3
    assert processes.open == 0


def test_the_probe_reads_memory_in_its_own_process():
    processes = Processes()
    with probes(processes) as under_test:
        assert under_test.memory() == MemoryNow(700, 20, 1000)
        under_test.probe(4)
    assert asked(processes) == ["start", "open", "device_memory", "build", "train", "close"]


def test_what_the_process_is_told():
    processes = Processes()
    environment = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    with probes(processes, steps=5, environment=environment, trust_config=True) as under_test:
        under_test.measure(8)
    told = dict(processes.log)
    assert told["start"] == environment
    assert told["open"] == {"device": "cuda:0", "precision": "fp32", "threads": 2}
    assert told["build"] == {"config": CONFIG.model_dump(mode="json"), "trust_config": True, "seed": 7}
    assert told["train"] == {"batch_size": 8, "steps": 5}


def test_a_failure_says_in_which_step():
    processes = Processes({"train": OOM}, stages=("setting up", "step 1 of 3", "step 2 of 3"))
    with probes(processes) as under_test, pytest.raises(WorkerError) as caught:
        under_test.measure(8)
    assert caught.value.failure.detail.endswith("CUDA out of memory (in training: step 2 of 3)")
    assert caught.value.failure.error == "OOM"
    assert caught.value.traceback == "Traceback ..."


def test_the_memory_of_a_probe_names_its_own_context():
    used = iter([300, 780])
    with probes(Processes(), lambda uuid: next(used)) as under_test:
        now = under_test.memory()
    assert now == MemoryNow(700, 20, 1000, 480)
    # 1000 - 700 free - 20 cached - 480 would be less than nothing: a little was freed between two questions.
    assert (now.unused_bytes, now.available_bytes, now.held_by_others(1000)) == (720, 1200, 0)
    # Where NVML tells nothing, as assumed, without the kernels that nothing has loaded yet.
    with probes(Processes(), assumed_context_bytes=KERNELS_BYTES + 130) as under_test:
        now = under_test.memory()
    assert (now.context_bytes, now.held_by_others(1000)) == (130, 150)
    assert MemoryNow(0).held_by_others(1000) == 1000


def test_what_a_probe_needs_is_what_a_recommendation_counts():
    # The driver's figure for the process at the end: 1,300 - 1,100 reserved then are context; 1,200 is the most.
    known = measured(1, (1000, 1200, 900), process_bytes=1300, reserved_at_end_bytes=1100)
    assert needed_bytes(known, 999) == 1400
    # Else the context that opening took, else the one assumed.
    assert needed_bytes(measured(1, opening_bytes=70), 999) == 1170
    assert needed_bytes(measured(1), 999) == 2099
    assert measured(1, (1000, 1100, 1300)).allocated_bytes == 1250


def test_the_peak_is_what_is_reserved_at_most():
    assert needed_bytes(measured(1, (1000, 1100, 900))) == 1100
    # Validation at full image size may be what decides.
    assert needed_bytes(measured(1, (1000, 1100, 1300))) == 1300
    resident = StepPeaks(1050, None, None)
    on_cpu = measured(1, cold=resident, warm=resident, validation=StepPeaks(900, None, None))
    assert needed_bytes(on_cpu) == 1050


def test_the_context_is_what_opening_the_process_took():
    used = iter([300, 780])
    with probes(Processes(), lambda uuid: next(used)) as under_test:
        assert under_test.measure(1).context_bytes == 480
    # Another process that ended meanwhile makes nonsense of it: null.
    used = iter([780, 300])
    with probes(Processes(), lambda uuid: next(used)) as under_test:
        assert under_test.measure(1).context_bytes is None


def test_a_device_without_room_for_a_process_has_no_memory():
    processes = Processes({"device_memory": NO_ROOM})
    with probes(processes) as under_test:
        assert under_test.memory() == MemoryNow(0)
        assert processes.open == 0
    crashed = Failure("crashed", "the measuring process ended by SIGSEGV", True)
    with probes(Processes({"open": crashed})) as under_test, pytest.raises(MemoryReadError, match="SIGSEGV"):
        under_test.memory()
