"""The checks of `validate_setup.py`, in the order they run."""

from __future__ import annotations

from swinmr_profiling.training.setup.setup_checks import Check
from swinmr_profiling.training.setup.setup_data import REPAIR, check_data, check_masks, check_overlap
from swinmr_profiling.training.setup.setup_network import (
    check_loss,
    check_lpips,
    check_model,
    check_plan,
    check_training_step,
)
from swinmr_profiling.training.setup.setup_run import (
    check_disk,
    check_distributed,
    check_profile,
    check_run_folder,
)
from swinmr_profiling.training.setup.setup_software import (
    check_config,
    check_device,
    check_optional_packages,
    check_packages,
    check_python,
)

CHECKS = (
    Check("python", check_python),
    Check("packages", check_packages),
    Check("config", check_config, needs=("packages",)),
    Check("more packages", check_optional_packages),
    Check("device", check_device, needs=("packages",)),
    Check("data", check_data, needs=("config",)),
    Check("overlap", check_overlap, needs=("data",), advice=REPAIR),
    Check(
        "masks",
        check_masks,
        needs=("config",),
        advice="set data.degradation.mask_file to a mask that can be read",
    ),
    Check("plan", check_plan, needs=("config",)),
    Check("model", check_model, needs=("config", "plan"), advice="change the model section"),
    Check("loss", check_loss, needs=("config",), advice="change training.loss"),
    Check("training step", check_training_step, needs=("device", "model", "loss", "masks")),
    Check("LPIPS", check_lpips, needs=("config",), advice="name another file, or null"),
    Check("disk", check_disk, needs=("model",)),
    Check(
        "run folder",
        check_run_folder,
        needs=("model",),
        advice="another experiment_name, or train.py --restart",
    ),
    Check("distributed", check_distributed, needs=("config",)),
    Check("profile", check_profile, needs=("config",)),
)
