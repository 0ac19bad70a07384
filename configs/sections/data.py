"""The `paths` and `data` sections."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swinmr_profiling.configs.errors import Problems
from swinmr_profiling.configs.field_types import (
    AccelerationOrNull,
    BatchSize,
    Count,
    Counts,
    Expected,
    FilePath,
    FilePathOrNull,
    Flag,
    FractionOrNull,
    Fractions,
    ImageSizeOrNull,
    NotNegative,
    Probability,
    Section,
    Seed,
    WholeNumber,
)

Source = Literal["auto", "phantom", "packaged", "fastmri", "npy", "nifti", "dicom", "png"]
Mask = Literal[
    "gaussian1d", "gaussian2d", "random1d", "equispaced1d", "radial", "spiral", "poisson2d", "file",
    "fastmri_random", "fastmri_equispaced", "fastmri_equispaced_fraction", "fastmri_magic",
    "fastmri_magic_fraction",
]  # fmt: skip
# How the axes of a .npy file are read. `kspace` and `coil_kspace` are measured k-space, all else is images.
Layout = Literal["auto", "slices_first", "slices_last", "kspace", "coil_kspace"]
Normalisation = Literal["min_max", "max", "percentile", "none"]
OnError = Literal["stop", "skip"]
# Sampled share of k-space where neither the share nor the acceleration is given: the published 30 %.
DEFAULT_SAMPLED_FRACTION = 0.3
# Sources that are made or installed with the package and read no folder.
SOURCES_WITHOUT_FOLDER = ("phantom", "packaged")


def _one_of(literal: object) -> Expected:
    return Expected(", ".join(f'"{name}"' for name in literal.__args__))  # type: ignore[attr-defined]


class PathsSection(Section):
    """Where runs write. Each run has its own folder, `root`/`experiment_name`."""

    root: FilePath = Field("../results", description="Folder of all runs.")
    checkpoints: FilePathOrNull = Field(
        None, description="Checkpoints. null: `checkpoints` in the run's folder."
    )
    logs: FilePathOrNull = Field(
        None, description="TensorBoard and JSON-lines logs. null: `logs` in the run's folder."
    )
    samples: FilePathOrNull = Field(None, description="Saved images. null: `samples` in the run's folder.")


class PhantomSection(Section):
    """The built-in Shepp-Logan phantom."""

    slices: Count = Field(64, description="Training slices.")
    val_slices: Count = Field(8, description="Validation slices, and as many test slices.")
    coils: Count = Field(1, description="Simulated receiver coils.")


class AugmentationSection(Section):
    """Changes of training patches; validation is never changed."""

    random_flip: Flag = Field(True, description="Flip left-right at random.")
    flip_probability: Probability = Field(0.5, description="Probability of that flip.")
    random_rotation: Flag = Field(
        True, description="Rotate by 0, 90, 180 or 270 degrees: with flips, 8 ways."
    )


class DegradationSection(Section):
    """How k-space is undersampled and disturbed."""

    mask: Annotated[Mask, _one_of(Mask)] = Field(
        "gaussian1d", description="Sampling pattern. `file` reads `mask_file`."
    )
    sampled_fraction: FractionOrNull = Field(
        None, description="Sampled share of k-space, centre included. null: from `acceleration`, or 0.3."
    )
    acceleration: AccelerationOrNull = Field(
        None, description="1 / sampled share. Give this or `sampled_fraction`, not both."
    )
    center_fraction: Probability = Field(
        0.08, description="Fully sampled central share of the lines, for the masks of lines (`...1d`)."
    )
    accelerations: Counts = Field(
        [4],
        description="For the masks of fastMRI (`fastmri_...`): of these one is drawn for each mask, with the "
        "`center_fractions` at its place.",
    )
    center_fractions: Fractions = Field(
        [0.08],
        description="For the masks of fastMRI: fully sampled central share, one for each acceleration.",
    )
    noise_std: NotNegative = Field(
        0.0,
        description="Deviation of complex Gaussian noise in k-space, in units of the image's maximum.",
    )
    mask_file: FilePathOrNull = Field(
        None, description="Mask for `file`: .npy, .mat or .tif (official SwinMR masks)."
    )
    fixed: Flag = Field(
        False,
        description="One mask for all slices and epochs, drawn once from `seed`, as the published recipe has.",
    )
    seed: Seed = Field(0, description="Seed of masks and noise. Validation repeats them every epoch.")

    @property
    def is_fastmri(self) -> bool:
        """Whether masks are drawn as the package fastmri draws them."""
        return self.mask.startswith("fastmri_")

    @property
    def nominal_fraction(self) -> float:
        """Sampled share of k-space that was asked for, 0 to 1 (a mask file may hold another)."""
        if self.is_fastmri:
            return sum(1 / acceleration for acceleration in self.accelerations) / len(self.accelerations)
        if self.sampled_fraction is not None:
            return self.sampled_fraction
        return DEFAULT_SAMPLED_FRACTION if self.acceleration is None else 1 / self.acceleration

    def problems(self) -> Problems:
        """Masks that are described twice, or not at all."""
        if self.sampled_fraction is not None and self.acceleration is not None:
            text = "sampled_fraction and acceleration say the same thing twice: give one, leave the other out"
            yield "acceleration", text
        if self.mask == "file" and self.mask_file is None:
            yield "mask_file", 'mask "file" needs a mask_file: give its path, or another mask'
        if self.mask != "file" and self.mask_file is not None:
            text = f'is read only with mask "file", but mask is "{self.mask}": change mask, or drop mask_file'
            yield "mask_file", text
        if self.is_fastmri:
            yield from self._problems_of_fastmri()
        if self.mask.endswith("1d") and self.center_fraction > self.nominal_fraction:
            share = f"{self.nominal_fraction:.3g}"
            text = f"{self.center_fraction:g} alone is more than the sampled share {share}: at most {share}"
            yield "center_fraction", text

    def _problems_of_fastmri(self) -> Problems:
        shares, counts = self.center_fractions, self.accelerations
        if len(shares) != len(counts) or not counts:
            text = f"{len(counts)} accelerations, but {len(shares)} center_fractions: one of each per kind of mask"
            yield "accelerations", text
            return
        for key in ("sampled_fraction", "acceleration"):
            if getattr(self, key) is not None:
                yield key, f'mask "{self.mask}" takes accelerations and center_fractions: drop it'
        for share, count in zip(shares, counts, strict=True):
            if share * count >= 1 and (count > 1 or share == 1):
                text = f"{share:g} alone is all of 1 / {count} or more: at most {0.9 / count:.2g} at {count}-fold"
                yield "center_fractions", text


class DataSection(Section):
    """Images, patches, loading and degradation."""

    batch_size: BatchSize = Field(
        1, description='Samples per device and step. `"auto"` reads the recommendation in `training.profile`.'
    )
    val_batch_size: Count = Field(1, description="Whole images per validation step.")
    source: Annotated[Source, _one_of(Source)] = Field(
        "auto",
        description="Kind of data. `auto`: by the files in the folder, or `phantom` where none is set.",
    )
    layout: Annotated[Layout, _one_of(Layout)] = Field(
        "auto",
        description="Axes of `.npy`: images (slices, H, W) or (H, W, slices), centred k-space (slices, H, W) or "
        "(slices, coils, H, W). `auto`: images, if one reading alone makes them square or one slice; else an error.",
    )
    train_dir: FilePathOrNull = Field(None, description="Folder of training data.")
    val_dir: FilePathOrNull = Field(None, description="Folder of validation data.")
    test_dir: FilePathOrNull = Field(None, description="Folder of test data.")
    phantom: PhantomSection = Field(PhantomSection(), description="The built-in phantom.")
    patch_size: ImageSizeOrNull = Field(
        None, description="Random training crop in pixels of the network's input. null: the whole image."
    )
    use_patches: Flag = Field(True, description="false trains on whole images whatever `patch_size` is.")
    num_workers: WholeNumber = Field(2, description="Loader processes. 0 loads in the training process.")
    prefetch_factor: Count = Field(2, description="Batches each loader process prepares ahead.")
    pin_memory: Flag = Field(True, description="Page-locked host memory for faster copies to a GPU.")
    on_error: Annotated[OnError, _one_of(OnError)] = Field(
        "stop",
        description="A training slice that cannot be read: `stop` saves and ends, `skip` takes the next one.",
    )
    max_skipped_samples: Count = Field(
        10, description="With `skip`: more different slices than this that cannot be read end the run."
    )
    normalisation: Annotated[Normalisation, _one_of(Normalisation)] = Field(
        "min_max",
        description="Scaling of each slice: to 0..1, by its maximum, by its 99th percentile, or none.",
    )
    augmentation: AugmentationSection = Field(AugmentationSection(), description="Flips and rotations.")
    degradation: DegradationSection = Field(DegradationSection(), description="Undersampling and noise.")

    @property
    def resolved_source(self) -> str:
        """`source`, with `auto` replaced by `phantom` where no folder is set."""
        no_folder = self.train_dir is None and self.val_dir is None and self.test_dir is None
        return "phantom" if self.source == "auto" and no_folder else self.source

    def problems(self) -> Problems:
        """Folders and layouts that the source does not have."""
        if self.layout != "auto" and self.source not in ("auto", "npy"):
            text = f'is of .npy files, but source is "{self.source}": drop it, or set source to "npy"'
            yield "layout", text
        if self.source in SOURCES_WITHOUT_FOLDER:
            for key in ("train_dir", "val_dir", "test_dir"):
                if getattr(self, key) is not None:
                    yield key, f'source "{self.source}" reads no folder: drop {key}, or set source to "auto"'
        elif self.source != "auto" and self.train_dir is None and self.test_dir is None:
            yield "train_dir", f'source "{self.source}" needs a train_dir or a test_dir'
