"""The commands of the fault rows as data: how each is called, its moments, what of its outputs is complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import complete_outputs


class Moment(NamedTuple):
    """A point of a command's progress.

    kind: "p" a text is printed, "w" a text is written to an output, "b" an output is about to be replaced, "r" it has
    just been, "o" a file whose name ends so is about to be opened. nth: the nth such event.
    phase: "early" before the command has begun its work, "late" when only writing, or ending, is left, "last" when
    nothing is written any more. first_run: a run that goes on from an earlier one does not come to it.
    """

    kind: str
    text: str
    nth: int = 1
    phase: str = "middle"
    first_run: bool = False

    def __str__(self) -> str:
        words = {"p": "printed", "w": "wrote", "b": "before replacing", "r": "replaced", "o": "opening"}
        return f"{words[self.kind]} {self.text}" + (f" #{self.nth}" if self.nth > 1 else "")


@dataclass(frozen=True)
class Command:
    """One command on tiny inputs; `{in}` and `{out}` are the row's folders.

    Attributes:
        template: what `templates.py` prepares for it: the inputs, and the outputs of an earlier run.
        complete: the complete things in its outputs, by name; raises BrokenOutputError.
        codes: exit statuses that its help or the README names, beside 0.
        next_arguments: of the run that goes on afterwards, None for the same ones.
        runs_network, has_children, reads_clock, takes_memory: whether a lost GPU, a killed child, a changed clock, a
            limit on memory can strike it.
    """

    name: str
    script: str
    template: str
    arguments: tuple[str, ...]
    moments: tuple[Moment, ...]
    complete: Callable[[Path], dict[str, Any]]
    codes: frozenset[int] = frozenset({2, 4})
    next_arguments: tuple[str, ...] | None = None
    runs_network: bool = True
    has_children: bool = True
    reads_clock: bool = True
    takes_memory: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


def _early(name: str) -> Moment:
    return Moment("o", name, phase="early")


def _printed(*texts: str, phase: str = "middle") -> tuple[Moment, ...]:
    return tuple(Moment("p", text, phase=phase) for text in texts)


def _replacing(name: str, *nth: int, phase: str = "middle") -> tuple[Moment, ...]:
    return tuple(Moment(kind, name, n, phase) for n in nth or (1,) for kind in ("b", "r"))


def _finally_replacing(name: str, nth: int = 1) -> tuple[Moment, ...]:
    return (Moment("b", name, nth, "late"), Moment("r", name, nth, "last"))


PROFILE = (
    *("--config", "{in}/own.json", "--trust-config", "--device", "cpu", "--batch-sizes", "1,2,4"),
    *("--num-runs", "2", "--warmup", "0", "--cross-check", "off", "--no-training"),
    *("--output", "{out}/profile.json", "--csv", "{out}/profile.csv", "--markdown", "{out}/profile.md"),
)
PROFILE_MOMENTS = (
    _early("own.json"),
    *_printed("[1/5]", "[2/5]", "[3/5]", "[4/5]", "[5/5]", "Testing batch size: 1", "Testing batch size: 2"),
    *_printed("Testing batch size: 4"),
    *_printed("PROFILING SUMMARY", "Results saved to", phase="late"),
    Moment("w", '"by_operator"'),
    Moment("w", '"status": "complete"', phase="late"),
    *_replacing("/profile.json", 1, 2, 3),
    *_replacing("/profile.csv", phase="late"),
    *_finally_replacing("/profile.md"),
)

COMMANDS = {
    command.name: command
    for command in (
        Command(
            "profile",
            "scripts/profile_model.py",
            "profile",
            PROFILE,
            PROFILE_MOMENTS,
            complete_outputs.of_profile,
            frozenset({2, 3, 4}),
            (*PROFILE, "--resume"),
        ),
        Command(
            "resume",
            "scripts/profile_model.py",
            "resume",
            (*PROFILE, "--resume"),
            PROFILE_MOMENTS,
            complete_outputs.of_profile,
            frozenset({2, 3, 4}),
            extra={"keeps_all": True},
        ),
        Command(
            "recommend",
            "scripts/recommend_batch_size.py",
            "recommend",
            (
                "{in}/profile.json",
                "--gpu-memory",
                "24GiB",
                "--target-batch",
                "64",
                "--write",
                "{out}/own.json",
            ),
            (
                _early("/profile.json"),
                Moment("o", "/own.json"),
                *_printed("Training batch size", "global batch"),
                *_printed("written to", phase="last"),
                Moment("w", '"batch_size": 16', phase="late"),
                *_finally_replacing("/own.json"),
            ),
            complete_outputs.of_files,
            frozenset({2, 3, 4}),
            runs_network=False,
            has_children=False,
            reads_clock=False,
            takes_memory=False,
        ),
        Command(
            "fit_inference",
            "scripts/fit_inference.py",
            "fit",
            (
                *("--config", "{in}/net.json", "--gpu-memory", "900MiB", "--image", "4000x3000"),
                *("--precision", "fp32", "--layout", "contiguous", "--output", "{out}/fit.json"),
            ),
            (
                _early("/net.json"),
                *_printed("Largest image", "An image of 4000 x 3000"),
                *_printed("written to", phase="last"),
                Moment("w", '"kind": "inference fit"', phase="late"),
                *_finally_replacing("/fit.json"),
            ),
            complete_outputs.of_files,
            frozenset({2, 3, 4}),
            runs_network=False,
            has_children=False,
            reads_clock=False,
            takes_memory=False,
        ),
        Command(
            "compare",
            "scripts/compare_profiles.py",
            "compare",
            (
                *("{in}/first.json", "{in}/second.json", "--html", "{out}/c.html"),
                *("--markdown", "{out}/c.md", "--csv", "{out}/c.csv"),
            ),
            (
                _early("/first.json"),
                Moment("o", "/second.json"),
                *_printed("Latency", "Parameters"),
                *_replacing("/c.html"),
                *_replacing("/c.md"),
                *_finally_replacing("/c.csv"),
                Moment("w", "<html"),
            ),
            complete_outputs.of_files,
            frozenset({2, 4, 5}),
            runs_network=False,
            has_children=False,
            reads_clock=False,
            takes_memory=False,
        ),
        Command(
            "profile_pipeline",
            "scripts/profile_pipeline.py",
            "pipeline",
            (
                *("--pipeline-dir", "{in}/unet", "--height", "16", "--steps", "2"),
                *("--output", "{out}/pipeline.json", "--csv", "{out}/pipeline.csv"),
            ),
            (
                _early("/model_index.json"),
                Moment("o", "/scheduler_config.json"),
                *_printed("Total per", "Results saved to", phase="late"),
                Moment("w", '"denoiser"', phase="late"),
                *_replacing("/pipeline.json", phase="late"),
                *_finally_replacing("/pipeline.csv"),
            ),
            complete_outputs.of_files,
            runs_network=False,
            has_children=False,
            reads_clock=True,
        ),
        Command(
            "generate_image",
            "scripts/generate_image.py",
            "generate",
            (
                *("--models", "{in}/unet", "{in}/transformer", "--prompt", "a cat", "--seed", "3"),
                *(
                    "--height",
                    "16",
                    "--width",
                    "16",
                    "--steps",
                    "2",
                    "--device",
                    "cpu",
                    "--output-dir",
                    "{out}",
                ),
            ),
            (
                _early("/model_index.json"),
                *_printed("Compute profile of unet", "Compute profile of transformer"),
                *_printed("(seed 3)", phase="last"),
                *_replacing("unet_seed3.png"),
                *_replacing("transformer_seed3.png"),
                *_replacing("/generation_config.json", 1),
                *_finally_replacing("/generation_config.json", 2),
                Moment("w", '"status": "done"'),
            ),
            complete_outputs.of_files,
            runs_network=False,
            has_children=False,
            reads_clock=True,
        ),
        Command(
            "plan_training",
            "scripts/plan_training.py",
            "plan",
            (
                "--config",
                "{in}/plan.json",
                "--gpu-memory",
                "24GiB",
                "--output",
                "{out}/plan.json",
                "--verbose",
            ),
            (
                _early("/plan.json"),
                *_printed("micro-batch 2: "),
                *_printed("Training plan: batch 2", "GMACs again", phase="late"),
                *_printed("plan written to", phase="last"),
                Moment("w", '"kind": "training plan"', phase="late"),
                *_finally_replacing("/plan.json"),
            ),
            complete_outputs.of_files,
            frozenset({2, 3, 4}),
            runs_network=False,
            has_children=False,
            reads_clock=False,
        ),
        Command(
            "train",
            "train.py",
            "train",
            ("--config", "{in}/train.json", "--device", "cpu", "--trust-config"),
            (
                _early("/train.json"),
                *_printed("per step; 6 steps", "data: k-space"),
                *_printed("step 6 of 6", phase="last"),
                *(Moment("w", f'"step": {step},', first_run=step < 4) for step in (1, 2, 3, 5)),
                Moment("w", '"kind": "validation"'),
                *(moment._replace(first_run=True) for moment in _replacing("/step_000000002.pth")),
                *_replacing("/step_000000004.pth"),
                *_replacing("/step_000000006.pth", phase="late"),
                *_replacing("/last.pth", 1, 2),
                *_replacing("/best.pth"),
            ),
            complete_outputs.of_training,
            extra={"ends_identical": True},
        ),
        Command(
            "test",
            "test.py",
            "test",
            (
                "--config",
                "{in}/train.json",
                "--device",
                "cpu",
                "--trust-config",
                "--output",
                "{out}/evaluation",
            ),
            (
                _early("/train.json"),
                Moment("o", "/best.pth"),
                *_printed("zero-filled", phase="last"),
                *_replacing("/slices.csv", phase="late"),
                *_replacing("/summary.json", phase="late"),
                *_replacing("/pictures.png", phase="late"),
                Moment("w", '"schema_version"', phase="late"),
            ),
            complete_outputs.of_evaluation,
        ),
        Command(
            "export_checkpoint",
            "scripts/export_checkpoint.py",
            "export",
            ("{in}/best.pth", "{out}/official.pth"),
            (
                _early("/best.pth"),
                *_finally_replacing("/official.pth"),
                *_printed("official.pth: ", phase="last"),
            ),
            complete_outputs.of_files,
            runs_network=False,
            has_children=False,
            reads_clock=False,
        ),
    )
}
