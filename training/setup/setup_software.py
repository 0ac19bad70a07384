"""Checks of what is installed: Python, packages by importing them, the config, the device."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swinmr_profiling import CHECKOUT
from swinmr_profiling.training.setup.setup_checks import Finding, SetupContext, failed, ok, readable, warning

DISTRIBUTION = "swinmr-profiling"
LEAST_PYTHON = (3, 10)
# Without these nothing here runs at all.
INDISPENSABLE = ("torch", "numpy", "pydantic", "tqdm", "psutil")
MODULES = {"nvidia-ml-py": "pynvml", "pillow": "PIL", "scikit-image": "skimage"}


@dataclass(frozen=True)
class OptionalPackage:
    """A package that some uses need. `needed` says whether this config is such a use.

    on_request: of a service that few use; that it is not installed is told only where it is needed.
    """

    name: str
    without_it: str
    needed: Callable[[Any], bool] = lambda config: False
    on_request: bool = False


def _reads(*sources: str) -> Callable[[Any], bool]:
    return lambda config: config.data.resolved_source in sources


OPTIONAL = (
    OptionalPackage("torchvision", "LPIPS and the VGG19 loss cannot be built"),
    OptionalPackage(
        "timm",
        "networks of net_type timm and dit_denoiser cannot be built",
        lambda config: config.model.net_type in ("timm", "dit_denoiser"),
    ),
    OptionalPackage(
        "diffusers",
        "networks of net_type diffusers cannot be built",
        lambda config: config.model.net_type == "diffusers",
    ),
    OptionalPackage("fvcore", "profiles lack fvcore's second opinion on MACs"),
    OptionalPackage("thop", "profiles lack thop's second opinion on MACs"),
    OptionalPackage("lpips", "test.py cannot report LPIPS, profiles not its cost"),
    OptionalPackage("nvidia-ml-py", "the GPU's driver and state are not recorded"),
    OptionalPackage("h5py", "fastMRI files cannot be read", _reads("fastmri")),
    OptionalPackage("nibabel", "NIfTI and the packaged head cannot be read", _reads("nifti", "packaged")),
    OptionalPackage("pydicom", "DICOM cannot be read", _reads("dicom")),
    OptionalPackage("pillow", "PNG and .tif masks cannot be read", _reads("png")),
    OptionalPackage("scipy", ".mat masks cannot be read"),
    OptionalPackage(
        "matplotlib", "test.py draws no pictures, packaged data lacks a slice", _reads("packaged")
    ),
    OptionalPackage(
        "tensorboard",
        "training cannot write TensorBoard files (logging.tensorboard)",
        lambda config: config.logging.tensorboard,
    ),
    OptionalPackage(
        "wandb",
        "training cannot log to Weights & Biases (logging.loggers)",
        lambda config: "wandb" in config.logging.loggers,
        on_request=True,
    ),
    OptionalPackage(
        "mlflow-skinny",
        "training cannot log to MLflow (logging.loggers)",
        lambda config: "mlflow" in config.logging.loggers,
        on_request=True,
    ),
)


def check_python(context: SetupContext) -> list[Finding]:
    """The interpreter's version."""
    version = platform.python_version()
    if sys.version_info < LEAST_PYTHON:
        least = ".".join(map(str, LEAST_PYTHON))
        return [failed("python", f"{version} is too old", f"install Python {least} or later")]
    return [ok("python", f"{version}, {platform.system()} {platform.machine()}")]


def minimum_versions() -> dict[str, str]:
    """Package to the least version that pyproject.toml asks for; installed, that file's list is in the metadata."""
    lines = (
        importlib.metadata.requires(DISTRIBUTION) or []
        if CHECKOUT is None
        # tomllib came with Python 3.11.
        else re.findall(r'"([^"\n]+)"', (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    )
    found = (re.match(r"([A-Za-z0-9._-]+)>=([0-9][0-9A-Za-z.]*)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def is_older(version: str, least: str) -> bool:
    """Whether a version's numbers are below the least one's; local parts ("+cu130") do not count."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(digits) for digits in re.findall(r"\d+", text.partition("+")[0]))

    return numbers(version) < numbers(least)


def look_at(package: str) -> tuple[str | None, str | None]:
    """(version, None) of a package that can be imported, else (None, why not)."""
    module = MODULES.get(package, package)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Another module may be what is missing: thop imports distutils.
        if error.name in (None, module):
            return None, "is not installed"
        return None, f"cannot be imported: {error}"
    except Exception as error:  # a broken installation raises anything while it is imported
        return None, f"cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
    try:
        return importlib.metadata.version(package), None
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(imported, "__version__", "unknown")), None


def check_packages(context: SetupContext) -> list[Finding]:
    """Packages without which nothing runs."""
    findings, versions = _look_at_all(dict.fromkeys(INDISPENSABLE, "nothing here runs"), lambda name: True)
    return [ok("packages", ", ".join(versions)), *findings] if versions else findings


def check_optional_packages(context: SetupContext) -> list[Finding]:
    """Packages that some uses need; failed where this config is one of them."""
    needed = {
        package.name for package in OPTIONAL if context.loaded is not None and package.needed(context.config)
    }
    asked = [package for package in OPTIONAL if package.name in needed or not package.on_request]
    without = {package.name: package.without_it for package in asked}
    findings, versions = _look_at_all(without, lambda name: name in needed)
    return [ok("more packages", ", ".join(versions)), *findings]


def _look_at_all(
    without: dict[str, str], is_needed: Callable[[str], bool]
) -> tuple[list[Finding], list[str]]:
    minimums = minimum_versions()
    findings, versions = [], []
    for name, consequence in without.items():
        version, problem = look_at(name)
        least = minimums.get(name)
        asked_for = f'pip install "{name}>={least}"' if least else f"pip install {name}"
        if problem is not None:
            tell = failed if is_needed(name) else warning
            findings.append(tell(f"package {name}", f"{problem}: {consequence}", asked_for))
            continue
        versions.append(f"{name} {version}")
        if least is not None and version is not None and is_older(version, least):
            findings.append(
                warning(f"package {name}", f"{version} is older than {least}, which is tested", asked_for)
            )
    return findings, versions


def check_config(context: SetupContext) -> list[Finding]:
    """Loads the config; every problem of the file is a line."""
    from swinmr_profiling.configs import ConfigError, load_config

    try:
        context.loaded = load_config(context.config_file, allow_unknown=context.allow_unknown)
    except ConfigError as error:
        return [failed("config", line, "see configs/README.md") for line in str(error).splitlines()]
    told = [warning("config", message, "check that this is meant") for message in context.loaded.messages]
    model = context.config.model.net_type
    return [ok("config", f"{context.config.experiment_name}, net_type {model}"), *told]


def check_device(context: SetupContext) -> list[Finding]:
    """The device that training would use, its driver and free memory."""
    import torch

    name = context.device_name
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    context.device = torch.device("cpu")
    if name.startswith("cuda") and (torch.device(name).index or 0) >= available:
        return [failed("device", f"{name} is not there ({available} available)", _how_to_get_cuda(torch))]
    if name == "cpu" or available == 0:
        memory = (
            f"CPU, {torch.get_num_threads()} threads, {readable(context.available_bytes())} of memory free"
        )
        if name == "cpu":
            return [ok("device", memory)]
        return [warning("device", f"no GPU is seen; {memory}", _how_to_get_cuda(torch))]
    context.device = torch.device("cuda", torch.device("cuda" if name == "auto" else name).index or 0)
    free, total = torch.cuda.mem_get_info(context.device)
    detail = (
        f"{torch.cuda.get_device_name(context.device)}, {readable(free)} of {readable(total)} free, CUDA "
        f"{torch.version.cuda}, driver {_driver_version()}"
    )
    findings = [ok("device", detail)]
    wants_bf16 = context.loaded is not None and context.config.system.mixed_precision in ("bf16", "pure_bf16")
    if wants_bf16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        advice = 'set system.mixed_precision to "fp16" or false'
        findings.append(warning("device", "this GPU has no bf16: it is emulated, slowly", advice))
    return findings


def _how_to_get_cuda(torch) -> str:
    if torch.version.cuda is None:
        return "this torch is built without CUDA: install a CUDA build, or pass --device cpu"
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver is installed: install one, or pass --device cpu"
    return f"does nvidia-smi show a GPU, and is its driver new enough for CUDA {torch.version.cuda}?"


def _driver_version() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # a driver without NVML is still a GPU that computes
        return "unknown (nvidia-ml-py)"
