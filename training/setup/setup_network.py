"""Checks of the network: built, run, trained for one step; the weights that its loss and LPIPS want."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swinmr_profiling.training.setup.setup_checks import Finding, SetupContext, failed, ok, readable, warning


def check_plan(context: SetupContext) -> list[Finding]:
    """The plan and the budget for checkpointing that the config names: what follows is checked as they have it."""
    training = context.config.training
    if (training.plan is None and training.checkpoint_budget is None) or context.as_trained is None:
        return []
    try:
        config, told = context.as_trained(context)
    except ValueError as error:  # a plan, a network or a loss
        return [failed("plan", str(error), "plan again, or take training.plan or the budget out")]
    assert context.loaded is not None
    context.loaded = replace(context.loaded, config=config)
    return [ok("plan", message) for message in told]


def check_model(context: SetupContext) -> list[Finding]:
    """Builds the network, loads `training.initial_weights`, and runs it once on a small image. Raises ModelError."""
    import torch

    from swinmr_profiling.models.checkpoints.published_weights import load_weights
    from swinmr_profiling.models.registry import build_model
    from swinmr_profiling.training.errors import first_line
    from swinmr_profiling.training.own_gradients import without_gradients
    from swinmr_profiling.training.step.losses import first_tensor

    config = context.config
    torch.manual_seed(config.system.seed)
    built = build_model(config, trust_config=context.trust_config)
    if config.training.initial_weights is not None:
        load_weights(built.module, Path(config.training.initial_weights))
    inputs = built.example_inputs(1, which="cross_check")
    try:
        module = built.module.eval()
        output = first_tensor(without_gradients(module, lambda: module(*inputs)))
    except Exception as error:  # a network may raise anything
        detail = f"its forward raises {type(error).__name__}: {first_line(error)}"
        return [failed("model", detail, "change the model section")]
    context.built = built
    count = sum(parameter.numel() for parameter in built.module.parameters())
    shapes = f"{tuple(inputs[0].shape)} to {tuple(output.shape)}"
    if not torch.isfinite(output).all():
        detail = f"{count:,} parameters; its output of random input is not finite"
        return [failed("model", detail, "check init_type, init_gain and initial weights")]
    return [ok("model", f"{count:,} parameters; {shapes}")]


def check_loss(context: SetupContext) -> list[Finding]:
    """Builds the loss; parts that are left out because their weights are missing are warnings. Raises LossError."""
    from swinmr_profiling.training.step.losses import build_loss

    loss = build_loss(context.config)
    advice = "training goes on without it; set its weight to 0 to have it so"
    return [ok("loss", loss.label), *(warning("loss", line, advice) for line in loss.skipped)]


def check_lpips(context: SetupContext) -> list[Finding]:
    """Which LPIPS test.py would report. Raises PerceptualMetricError."""
    from swinmr_profiling.training.evaluation.perceptual_metric import (
        BACKBONE_NAME,
        choose_perceptual_metric,
        default_backbone_file,
    )

    named = context.config.evaluation.lpips_weights
    choice = choose_perceptual_metric(
        None if named is None else Path(named), named_by="evaluation.lpips_weights"
    )
    advice = f"put {BACKBONE_NAME} into {default_backbone_file().parent}"
    if choice.metric is None:
        return [warning("LPIPS", f"test.py reports null: {choice.reason}", advice)]
    if choice.metric.name == "st_lpips":
        return [warning("LPIPS", "test.py reports st_lpips instead, which has another scale", advice)]
    return [ok("LPIPS", f"weights {choice.metric.weights}")]


def check_training_step(context: SetupContext) -> list[Finding]:
    """One step of one sample at the configured patch, in a process of its own, where memory allows."""
    from swinmr_profiling.training.errors import first_line
    from swinmr_profiling.training.setup.single_step_process import StepFailedError, run_single_step

    assert context.device is not None
    name, config, device = "training step", context.config, context.device
    free = _free_bytes(context)
    try:
        needed, how = _needed_bytes(context)
    except Exception as error:  # a network that reads values does not run on tensors without any
        told = f"its memory is unknown: {type(error).__name__} on meta tensors: {first_line(error)}"
    else:
        told = f"{how} {readable(needed)}, {readable(free)} free"
        if needed > free:
            advice = (
                "smaller data.patch_size, training.gradient_checkpointing full, or a device with more memory"
            )
            return [failed(name, f"one sample does not fit: {told}", advice)]
    try:
        report = run_single_step(
            config.model_dump(mode="json"),
            str(device),
            trust_config=context.trust_config,
            real_sample="train" in context.volumes,
            timeout_s=context.timeout_s,
        )
    except StepFailedError as error:
        return [failed(name, f"{error} ({told})", "change data, model or training as the message says")]
    return [
        ok(
            name,
            f"1 sample, loss {report.loss:.4g}, {report.seconds:.1f} s the first time, "
            f"{readable(report.peak_bytes)} ({report.memory_kind}); {told}",
        )
    ]


def _needed_bytes(context: SetupContext) -> tuple[int, str]:
    """Bytes of the process, and what kind of figure that is. Raises whatever the network raises."""
    from swinmr_profiling.training.setup.step_memory import estimate_step

    assert context.built is not None
    if context.device is not None and context.device.type == "cuda":
        return context.predict_step_bytes(context), "predicted"
    return estimate_step(context.built, context.config).needed_bytes(), "estimate in fp32"


def _free_bytes(context: SetupContext) -> int:
    if context.device is not None and context.device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(context.device)[0]
    return context.available_bytes()
