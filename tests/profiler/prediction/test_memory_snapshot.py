"""A predicted step as PyTorch's memory viewer reads it: its peak, its blocks and its lines of code."""

import pickle
import pickletools

import numpy as np
import pytest
import torch.cuda._memory_viz as memory_viz

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.prediction.memory_snapshot import snapshot_of, write_snapshot
from swinmr_profiling.profiler.prediction.replay import replay
from swinmr_profiling.profiler.prediction.trace.allocation_frames import short_name, without_folder
from swinmr_profiling.profiler.prediction.trace.storage_trace import PHASES, Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_lines, trace_training
from tests.conftest import TINY_SWINIR

MIB = 2**20
# What MemoryViz.js of torch 2.9 to 2.14 knows of pickle; anything else ends its reading.
VIEWERS_OPCODES = """
    APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE
    FRAME LONG1 LONG_BINGET MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM SETITEMS SHORT_BINUNICODE STOP
    TUPLE TUPLE1 TUPLE2 TUPLE3
"""


def viewers_peak(snapshot):
    """The highest point of the viewer's timeline: sizes of what is alive, by address (process_alloc_data)."""
    alive, peak = {}, 0
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            assert event["addr"] not in alive
            alive[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert alive.pop(event["addr"]) == event["size"]
        peak = max(peak, sum(alive.values()))
    return peak, alive


def check_segments(snapshot, alive):
    """Blocks tile their segments, and what is active at the end is what the timeline leaves."""
    active = {}
    for segment in snapshot["segments"]:
        place = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == place
            place += block["size"]
            if block["state"] == "active_allocated":
                active[block["address"]] = block["size"]
        assert place == segment["address"] + segment["total_size"]
    assert active == alive


def made_trace(sizes, events, phases, starts):
    numbers = np.zeros(len(sizes), dtype=np.int8)
    return Trace(
        batch_size=1,
        sizes=np.array(sizes, dtype=np.int64),
        phases=numbers,
        categories=numbers,
        operators=np.zeros(len(sizes), dtype=np.int32),
        operator_names=["aten.mm.default"],
        events=np.array(events, dtype=np.int32),
        event_phases=np.array([PHASES.index(one) for one in phases], dtype=np.int8),
        step_starts=starts,
    )


def test_by_hand():
    # Setup: 1000 -> 1024 B stay, 9 MiB go again. Step: 2 MiB and 100 -> 512 B; the 2 MiB go. Then 30 MiB of validation.
    trace = made_trace(
        [1000, 9 * MIB, 2 * MIB, 100, 30 * MIB],
        [1, 2, -2, 3, 4, -3, 5],
        ["setup"] * 3 + ["forward"] * 3 + ["validation"],
        [3, 6],
    )
    snapshot, written = snapshot_of(trace, None, workspace_bytes=5 * MIB, title="PREDICTED")
    # The viewer draws one timeline a stream; all of this is on the default stream, whose address is 0.
    assert {event["stream"] for event in snapshot["device_traces"][0]} == {0}
    peak, alive = viewers_peak(snapshot)
    assert peak == written.peak_bytes == 5 * MIB + 1024 + 2 * MIB + 512
    assert sorted(alive.values()) == [512, 1024, 5 * MIB]
    check_segments(snapshot, alive)
    # The workspaces' own segment, one of 2 MiB for the small ones, one of 20 MiB for those of 1 to 10 MiB.
    assert [segment["total_size"] for segment in snapshot["segments"]] == [5 * MIB, 2 * MIB, 20 * MIB]
    assert [segment["segment_type"] for segment in snapshot["segments"]] == ["large", "small", "large"]
    assert written.reserved_bytes == 27 * MIB
    assert not written.with_lines
    # Setup alone is higher: 9 MiB before the first step are none of the step's.
    assert not any(e["size"] == 9 * MIB for e in snapshot["device_traces"][0] if e["action"] == "alloc")


@pytest.fixture(scope="module")
def tiny():
    config = config_from_dict(
        {
            "model": TINY_SWINIR,
            "data": {"use_patches": False},
            "training": {"gradient_checkpointing": "none"},
            "system": {"mixed_precision": "bf16"},
        }
    )
    built = build_model(config)
    trace = trace_training(built, config, 2)
    recorder = trace_lines(built, config, 2)
    return trace, recorder, recorder.finish(2, [])


@pytest.mark.slow
def test_a_trace_with_lines_is_the_trace_without(tiny):
    trace, recorder, again = tiny
    steps = len(again.events)
    assert np.array_equal(again.events, trace.events[:steps])
    assert np.array_equal(again.sizes, trace.sizes[: len(again.sizes)])
    assert again.operator_names == trace.operator_names[: len(again.operator_names)]
    assert len(recorder.stacks) == len(again.sizes)


@pytest.mark.slow
def test_the_viewer_reads_it_and_its_peak_is_the_predicted_one(tiny, tmp_path):
    trace, recorder, _ = tiny
    title = "PREDICTED training step, batch 2"
    snapshot, written = snapshot_of(trace, recorder.stacks, workspace_bytes=MIB, title=title)
    peak, alive = viewers_peak(snapshot)
    predicted = replay(trace).training
    assert peak == written.peak_bytes == predicted.allocated_bytes + MIB
    assert written.reserved_bytes == predicted.reserved_bytes + MIB
    check_segments(snapshot, alive)

    file = tmp_path / "step.pickle"
    write_snapshot(snapshot, file)
    used = {opcode.name for opcode, _, _ in pickletools.genops(file.read_bytes())}
    assert used <= set(VIEWERS_OPCODES.split())
    read = pickle.loads(file.read_bytes())
    assert read["title"] == title
    # torch's own reader: reserved and allocated add up, every event is one that it knows, both plots are made.
    assert f"segments: {len(snapshot['segments'])}" in memory_viz.segsum(read)
    listed = memory_viz.trace(read)
    assert "{'action'" not in listed
    assert listed.count("cudaMalloc") == len(snapshot["segments"])
    for plot in (memory_viz.trace_plot, memory_viz.segment_plot):
        assert "snapshot.pickle" in plot(pickle.loads(file.read_bytes()))
    flames = memory_viz.memory(read, format_flamegraph=lambda lines: lines)
    assert title in flames

    events = snapshot["device_traces"][0]
    categories = {event["category"] for event in events if "category" in event}
    # The viewer's page fails where there are categories and "unknown" is none of them.
    assert "unknown" in categories
    assert all(one.startswith("predicted: ") for one in categories - {"unknown"})
    assert all(event["frames"][-1]["name"] == title for event in events)


def test_private_lines_have_no_folder_of_the_users():
    assert without_folder(("/home/somebody/net.py", 7, "forward")) == ("net.py", 7, "forward")
    assert without_folder(("models/dit.py", 7, "forward")) == ("models/dit.py", 7, "forward")
    assert short_name("/usr/lib/python3.11/site-packages/torch/optim/adam.py") == "torch/optim/adam.py"
    assert short_name("/home/somebody/net.py") == "/home/somebody/net.py"


@pytest.mark.slow
def test_frames_are_the_modules_and_lines(tiny):
    _, recorder, again = tiny
    by_operator = {}
    for number, stack in enumerate(recorder.stacks):
        by_operator.setdefault((PHASES[again.phases[number]], stack[0][2]), []).append(stack)

    def lines(phase, operator):
        return [
            "\n".join(f"{file} {name}" for file, _, name in stack) for stack in by_operator[phase, operator]
        ]

    # The first convolution of the network: its module, its file, and train.py's own step.
    first = lines("forward", "aten.convolution.default")[0]
    assert "module conv_first (Conv2d)" in first
    assert "models/swin/swinir.py forward, module the network (SwinIR)" in first
    assert "training/step/training_step.py training_step" in first
    # Gradients of a convolution are told by the forward line that they are of.
    gradients = lines("backward", "aten.convolution_backward.default")
    assert "ConvolutionBackward0, the backward of" in gradients[0]
    assert any("module conv_last (Conv2d)" in text for text in gradients[:2])
    assert "module.to(device) of conv_first.weight" in [s[0][2] for s in recorder.stacks]
    # AdamW keeps two states of each of the parameters, made in torch's optimizer.
    states = lines("optimizer", "aten.zeros_like.default")
    assert all("torch/optim/adam.py" in text for text in states)
    assert not any("profiler/prediction" in text for key in by_operator for text in lines(*key))
