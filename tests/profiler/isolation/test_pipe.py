"""The two ends of the pipe: what a process answers is JSON between them, and the same object on the other side."""

import io
import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from swinmr_profiling.profiler.isolation.worker import serve
from swinmr_profiling.profiler.isolation.worker_process import WorkerProcess
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, Built, Opened, StepPeaks
from swinmr_profiling.profiler.measure.timing.latency import LatencySamples
from swinmr_profiling.profiler.record.blocks.architecture import Architecture
from swinmr_profiling.profiler.record.blocks.run_description import Environment
from tests.made_profiles import architecture, environment, gpu
from tests.training_profiles import MEASURED

BATCH = BatchMeasurement(
    batch_size=2,
    input_shape=[2, 1, 8, 8],
    latency=LatencySamples([1.5, 2.0], [9.0], "precise", ["a note"], 2, [1, 1]),
    before_bytes=100,
    after_bytes=101,
    peak_bytes=200,
    cold_peak_bytes=200,
    warm_peak_bytes=199,
    reserved_peak_bytes=None,
    memory_kind="resident",
    memory_is_exact=False,
    first_nonfinite_module=None,
)
ANSWERS = [
    Opened("cuda:0", Environment.model_validate(environment(gpu()))),
    Built(Architecture.model_validate(architecture()), [1, 1, 96, 96]),
    BATCH,
    replace(MEASURED, cold=StepPeaks(5, None, None), process_bytes=7),
]


class Network:
    """Answers with what the test wants; its requests are kept."""

    answer, asked = None, []

    def __init__(self, send):
        self.send = send

    def do_anything(self, **arguments):
        self.asked.append(arguments)
        self.send("run", runs=3)
        return self.answer


def lines(answer, **arguments):
    """What the process writes to a request."""
    Network.answer, written = answer, io.StringIO()
    serve(io.StringIO(json.dumps({"do": "anything", **arguments}) + "\n"), written, Network)
    return written.getvalue().splitlines()


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_arrives_as_it_was_sent(answer):
    event, done = map(json.loads, lines(answer))
    assert (event, done["event"]) == ({"event": "run", "runs": 3}, "done")
    assert TypeAdapter(type(answer)).validate_python(done["result"]) == answer


def test_keys_that_nobody_set_are_absent_at_the_other_end_too():
    sent = Architecture.model_validate(architecture())
    _, done = map(json.loads, lines(Built(sent, [1])))
    built = TypeAdapter(Built).validate_python(done["result"])
    assert built.architecture.to_json() == sent.to_json() == architecture()


def test_arguments_come_by_name():
    lines(None, batch_size=4, num_runs=None)
    assert Network.asked[-1] == {"batch_size": 4, "num_runs": None}


def test_half_an_answer_is_refused_where_it_arrives():
    half = {key: value for key, value in vars(BATCH).items() if key != "peak_bytes"}
    with pytest.raises(ValidationError, match="peak_bytes"):
        TypeAdapter(BatchMeasurement).validate_python({**half, "latency": vars(BATCH.latency)})


def test_a_live_process_answers_typed(tmp_path, monkeypatch):
    """A process that needs no torch, by the real pipe; an answer of another type is refused here."""
    module = tmp_path / "answering.py"
    module.write_text(
        "class Twice:\n"
        "    def __init__(self, send): self.send = send\n"
        "    def do_twice(self, number):\n"
        "        self.send('stage', stage='doubling')\n"
        "        return 2 * number\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    said = []
    with WorkerProcess(worker="answering.Twice") as process:
        assert process.ask("twice", int, 30, said.append, number=21) == 42
        with pytest.raises(ValidationError):
            process.ask("twice", int, 30, number="half")
    assert [progress.stage for progress in said] == ["doubling"]
