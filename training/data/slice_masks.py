"""Which mask and which noise a slice gets: the seeds of training, of validation and of a fixed mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from swinmr_profiling.configs.sections.data import DegradationSection
from swinmr_profiling.training.degradation.fastmri_masks import fastmri_mask, padded_columns_left_out, seed_of
from swinmr_profiling.training.degradation.mask_files import read_mask
from swinmr_profiling.training.degradation.masks import NOT_SWINMRS, SWINMR_KINDS, draw_mask
from swinmr_profiling.training.degradation.random_choice import name_seed
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.volumes import Volume

# First numbers of seeds, so that no two uses of a seed share a sequence; crops have 2.
MASK_STREAM, VALIDATION_STREAM, FIXED_MASK_STREAM = 1, 3, 5


class SliceMasks:
    """The masks of one split: in training another for every sample, in validation the same for a slice every time."""

    def __init__(self, degradation: DegradationSection, *, training: bool, seed: int) -> None:
        """Raises DataError for a mask file that cannot be read."""
        self.degradation, self.training, self.seed = degradation, training, seed
        self._file = None if degradation.mask_file is None else read_mask(degradation.mask_file)

    @property
    def nominal_fraction(self) -> float | None:
        """The share that was asked for; None for a mask file, which has its own."""
        return None if self._file is not None else self.degradation.nominal_fraction

    @property
    def note(self) -> str | None:
        """What figures with this mask are not: None for a mask file, and for patterns that SwinMR has no files of."""
        kind = self.degradation.mask
        return f"mask {kind} is drawn, {NOT_SWINMRS}" if kind in SWINMR_KINDS else None

    def check(self, volume: Volume) -> None:
        """Raises DataError where a mask file is not of the size of the volume's k-space."""
        if self._file is not None and self._file.shape != volume.kspace_hw:
            mask_hw, kspace_hw = self._file.shape, volume.kspace_hw
            raise DataError(
                f"{self.degradation.mask_file}: is {mask_hw[0]} x {mask_hw[1]}, but {volume.name} has k-space of "
                f"{kspace_hw[0]} x {kspace_hw[1]}: use data of the mask's size, or a drawn mask"
            )

    def generator(self, sample_seed: Sequence[int], slice_name: str) -> np.random.Generator:
        """All randomness of a sample's mask and noise: of its key in training, of its name in validation."""
        of_key = [MASK_STREAM, self.seed, self.degradation.seed, *sample_seed]
        of_name = [VALIDATION_STREAM, self.degradation.seed, name_seed(slice_name)]
        return np.random.default_rng(of_key if self.training else of_name)

    def mask(self, volume: Volume, rng: np.random.Generator) -> np.ndarray:
        """A boolean mask (H', W') of the volume's k-space. Raises DataError where no such mask can be drawn for it."""
        if self._file is not None:
            return self._file
        options, kspace_hw = self.degradation, volume.kspace_hw
        if options.fixed:
            # Of this size of k-space, the same in every split and process; noise is still drawn anew.
            rng = np.random.default_rng([FIXED_MASK_STREAM, options.seed, *kspace_hw])
        if not options.is_fastmri:
            return draw_mask(options.mask, kspace_hw, options.nominal_fraction, rng, options.center_fraction)
        # As fastMRI: in validation the file's name decides, for all its slices.
        seeded = self.training or options.fixed
        state = np.random.RandomState(rng.integers(2**32, size=4) if seeded else seed_of(volume.name))
        try:
            mask = fastmri_mask(
                options.mask, kspace_hw, options.accelerations, options.center_fractions, state
            )
        except ValueError as error:
            raise DataError(f"{volume.name}: {error}") from error
        return padded_columns_left_out(mask, getattr(volume, "measured_columns", None))
