"""Rows of workspaces.json, and what they make of a replay."""

import numpy as np
import pytest

from swinmr_profiling.profiler.allocator.workspaces import Workspaces, WorkspaceTableError, workspaces_for
from swinmr_profiling.profiler.prediction.replay import replay
from swinmr_profiling.profiler.prediction.trace.storage_trace import PHASES, Trace

MIB = 2**20
AMPERE, HOPPER = 8_519_680, 32 * MIB  # :4096:2:16:8 = 2 x 4 MiB + 8 x 16 KiB


@pytest.mark.parametrize(
    ("version", "capability", "cublas", "cublaslt", "kept"),
    [
        ("2.0.1", "8.0", AMPERE, MIB, False),
        ("2.4.1+cu121", "8.6", AMPERE, MIB, False),
        ("2.6.0", "9.0", HOPPER, MIB, False),
        ("2.9.1", "8.9", AMPERE, MIB, True),
        ("2.11.0+cu130", "9.0", HOPPER, MIB, True),
        ("2.11.0", "12.0", AMPERE, MIB, True),
        ("2.14.1+cu130", "12.0", HOPPER, 0, True),
        ("2.14.1", "8.6", AMPERE, 0, True),
        ("2.14.1", "7.5", AMPERE, 0, True),
        ("1.12.1", "8.0", 0, MIB, False),
    ],
)
def test_rows(version, capability, cublas, cublaslt, kept):
    found = workspaces_for(version, capability)
    assert (found.cublas_bytes, found.cublaslt_bytes, found.cublaslt_kept) == (cublas, cublaslt, kept)
    assert "is not in the table" not in found.source


def test_rocm_has_none_in_the_allocator():
    found = workspaces_for("2.4.0", "gfx90a")
    assert (found.cublas_bytes, found.cublaslt_bytes) == (0, 0)
    assert "the GPU is unknown" not in found.source
    # The largest context of CUDA's table, 426 MiB, with the kernels that a run loads.
    assert found.context_bytes == (426 + 128) * MIB


def test_context_and_whether_it_was_measured():
    ampere = workspaces_for("2.14.1", "8.6")
    assert ampere.context_bytes == (256 + 128) * MIB
    assert "measured on an RTX 3090" in ampere.source
    hopper = workspaces_for("2.14.1", "9.0")
    assert hopper.context_bytes == (426 + 128) * MIB
    assert "426 MiB assumed" in hopper.source


def test_what_the_table_does_not_know_is_the_nearest_newer_row_and_says_so():
    old = workspaces_for("1.8.0", "8.0")
    assert old.cublas_bytes == 0
    assert "torch 1.8 is not in the table, 1.12 is taken" in old.source
    new = workspaces_for("2.20.0", "8.0")
    assert new.cublas_bytes == AMPERE
    assert "torch 2.20 is newer than the table" in new.source
    thor = workspaces_for("2.14.0", "11.0")
    assert thor.cublas_bytes == AMPERE
    assert "compute capability 12.0, the nearest newer that is known" in thor.source
    later = workspaces_for("2.14.0", "14.0")
    assert later.cublas_bytes == HOPPER
    assert "compute capability 14.0 is not in the table" in later.source
    unknown = workspaces_for("2.14.0", None)
    assert unknown.cublas_bytes == HOPPER
    assert "the GPU is unknown, the largest workspaces of this version are taken" in unknown.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nightly", "8.0"), "torch version 'nightly'"),
        (("2.14.0", "sm_80"), "compute capability 'sm_80'"),
    ],
)
def test_what_cannot_be_read_is_said(arguments, message):
    with pytest.raises(WorkspaceTableError, match=message):
        workspaces_for(*arguments)


def trace_of(*operators):
    """512-byte results of operators, each (name, phase), kept."""
    count = len(operators)
    phases = np.array([PHASES.index(phase) for _, phase in operators], dtype=np.int8)
    return Trace(
        batch_size=1,
        sizes=np.full(count, 512),
        phases=phases,
        categories=np.zeros(count, dtype=np.int8),
        operators=np.arange(count, dtype=np.int32),
        operator_names=[name for name, _ in operators],
        events=np.arange(1, count + 1, dtype=np.int32),
        event_phases=phases,
        step_starts=[0],
    )


STEP = (
    ("aten.addmm.default", "forward"),
    ("aten.addmm.default#2", "forward"),
    ("aten.bmm.default", "forward"),
    ("aten.mm.default", "backward"),
    ("aten.mm.default#2", "backward"),
)


@pytest.mark.parametrize(
    ("workspaces", "kept", "peak"),
    [
        # Forward and backward thread, cublasLt's 1 MiB comes and goes before the second thread's.
        (Workspaces(8 * MIB, MIB, 0, ""), 16 * MIB, 16 * MIB),
        # cublasLt's is kept by the forward thread, which alone has products with a bias.
        (Workspaces(8 * MIB, MIB, 0, "", cublaslt_kept=True), 17 * MIB, 17 * MIB),
        # The bmm makes the forward thread's all the same.
        (Workspaces(8 * MIB, MIB, 0, "", cublaslt_makes_cublas=False), 16 * MIB, 16 * MIB),
        (Workspaces(8 * MIB, 0, 0, ""), 16 * MIB, 16 * MIB),
        # More than cuBLAS's: two results, and the first thread's 1 MiB and 64.
        (Workspaces(MIB, 64 * MIB, 0, ""), 2 * MIB, 65 * MIB),
    ],
)
def test_threads_keep_what_they_take_once(workspaces, kept, peak):
    result = replay(trace_of(*STEP), workspaces=workspaces)
    assert result.workspace_bytes == kept
    results = len(STEP) if peak == kept else 2
    assert result.training.allocated_bytes == peak + results * 512


def test_without_a_handle_only_the_other_products_make_a_workspace():
    alone = trace_of(("aten.addmm.default", "forward"))
    lazy = Workspaces(8 * MIB, MIB, 0, "", cublaslt_makes_cublas=False)
    assert replay(alone, workspaces=lazy).workspace_bytes == 0
    assert replay(alone, workspaces=lazy).training.allocated_bytes == MIB + 512
    eager = Workspaces(8 * MIB, MIB, 0, "")
    assert replay(alone, workspaces=eager).training.allocated_bytes == 9 * MIB + 512
