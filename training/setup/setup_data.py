"""Checks of data and masks: folders are opened, slices are read, masks are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swinmr_profiling.configs.sections.data import SOURCES_WITHOUT_FOLDER
from swinmr_profiling.training.setup.setup_checks import Finding, SetupContext, failed, ok, warning

if TYPE_CHECKING:
    from swinmr_profiling.training.data.sources import Split

# First, middle and last: what is wrong with one file of many shows only in the training.
SLICES_READ = 3
MASKS_DRAWN = 8
# A drawn mask may miss the asked-for share by a line or two.
SHARE_TOLERANCE = 0.02
REPAIR = "repair what the message names"
# Some 2,500 slices of 320 x 320: a minute. Larger sets are looked at in part.
HASHED_PIXELS = 2**28
HASHED_LEVELS = 255
MISSING = {
    "val": ("no validation: no checkpoint is chosen as the best", "set data.val_dir"),
    "test": ("test.py has nothing to measure", "set data.test_dir"),
}


def check_data(context: SetupContext) -> list[Finding]:
    """Every split: opens its folder and reads some of its slices, with a mask that suits any data."""
    return [_split(context, "train"), _split(context, "val"), _split(context, "test")]


def _split(context: SetupContext, split: Split) -> Finding:
    from swinmr_profiling.configs.sections.data import DegradationSection
    from swinmr_profiling.training.data.dataset import build_dataset
    from swinmr_profiling.training.data.loader import build_loader
    from swinmr_profiling.training.data.sources import has_split
    from swinmr_profiling.training.errors import DataError

    config, name = context.config, f"data {split}"
    if not has_split(config, split):
        if split in MISSING:
            return warning(name, *MISSING[split])
        return failed(name, "data.train_dir is not set", "name the folder of the training data")
    # Masks have a check of their own: a bad one must not look like bad data.
    data = config.data.model_copy(update={"degradation": DegradationSection()})
    plain = config.model_copy(update={"data": data})
    try:
        dataset = build_dataset(plain, split)
        context.volumes[split] = dataset.volumes
        batch_size = data.batch_size if split == "train" else data.val_batch_size
        # What is automatic may be any number: slices must stack in twos.
        build_loader(plain, split, dataset=dataset, batch_size=2 if batch_size == "auto" else batch_size)
        chosen = sorted({0, len(dataset) // 2, len(dataset) - 1})[:SLICES_READ]
        for index in chosen:
            dataset[index]
    except DataError as error:
        return failed(name, str(error), REPAIR)
    sizes = ", ".join(f"{height} x {width}" for height, width in dataset.image_sizes[:3])
    more = ", ..." if len(dataset.image_sizes) > 3 else ""
    return ok(
        name,
        f"{len(dataset)} slices in {len(dataset.volumes)} volumes, {sizes}{more}; {len(chosen)} read; "
        f"{dataset.kspace_statement}",
    )


def check_overlap(context: SetupContext) -> list[Finding]:
    """Whether the sets share slices, by their content, and whether they hold images at all.

    Of sets of more than HASHED_PIXELS a few slices of each volume are looked at; the line says so. Raises DataError.
    """
    import numpy as np

    from swinmr_profiling.training.volumes import read_slice

    if not context.volumes or context.config.data.resolved_source in SOURCES_WITHOUT_FOLDER:
        return [ok("overlap", "the sets are made apart")]
    pixels = sum(
        volume.slices * volume.image_hw[0] * volume.image_hw[1]
        for volumes in context.volumes.values()
        for volume in volumes
    )
    whole = pixels <= HASHED_PIXELS
    findings: list[Finding] = []
    seen: dict[str, tuple[str, str]] = {}
    shared: dict[tuple[str, str], list[str]] = {}
    count = 0
    for split, volumes in context.volumes.items():
        blank = looked_at = 0
        for volume in volumes:
            last = volume.slices - 1
            for index in range(volume.slices) if whole else sorted({last // 4, last // 2, 3 * last // 4}):
                image = read_slice(volume, index).image
                looked_at += 1
                if not np.isfinite(image).all():
                    detail = f"{split}: {volume.name}, slice {index} has NaN or infinite values"
                    return [failed("overlap", detail, "repair the file or leave it out")]
                if image.min() == image.max():
                    blank += 1
                    continue
                digest, name = _content_hash(image), f"{volume.name}, slice {index}"
                other, other_name = seen.setdefault(digest, (split, name))
                if other != split:
                    shared.setdefault((other, split), []).append(f"{other_name} = {name}")
        count += looked_at
        if blank == looked_at:
            detail = f"{split}: all {looked_at} slices are of one value (blank)"
            findings.append(failed("overlap", detail, "is this the image data? Compare with another viewer"))
        elif blank:
            detail = f"{split}: {blank} of {looked_at} slices are of one value (blank)"
            findings.append(warning("overlap", detail, "leave them out: they count in training and in means"))
    for (first, second), pairs in shared.items():
        detail = f"{len(pairs)} slices of {second} are in {first} too: {'; '.join(pairs[:2])}"
        findings.append(failed("overlap", detail, "split by patient, so that no slice is in two sets"))
    return findings or [
        ok("overlap", f"{count} slices{'' if whole else ' (three a volume)'}: in one set each")
    ]


def _content_hash(image) -> str:
    """SHA-256 of the image's values, the same for every scaling, flip and quarter turn of it.

    Values are scaled to 256 grey levels, so that formats that round otherwise (PNG, DICOM, float) agree.
    """
    import hashlib

    import numpy as np

    magnitude = np.abs(image).astype(np.float64)
    low, high = magnitude.min(), magnitude.max()
    if not np.isfinite(high) or high == low:
        return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()
    grey = np.rint((magnitude - low) / (high - low) * HASHED_LEVELS).astype(np.uint16)
    turns = [np.rot90(side, turn) for side in (grey, grey.T) for turn in range(4)]
    return hashlib.sha256(min(repr(t.shape).encode() + t.tobytes() for t in turns)).hexdigest()


def check_masks(context: SetupContext) -> list[Finding]:
    """Draws masks of the data's size, or reads the mask file and compares sizes. Raises DataError."""
    import numpy as np

    from swinmr_profiling.training.data.sources import whole_image_hw
    from swinmr_profiling.training.degradation.mask_files import read_mask
    from swinmr_profiling.training.degradation.masks import NOT_SWINMRS, SWINMR_KINDS

    options = context.config.data.degradation
    volumes = [volume for split in context.volumes.values() for volume in split]
    sizes = sorted({volume.kspace_hw for volume in volumes}) or [whole_image_hw(context.config)]
    if options.mask_file is not None:
        mask = read_mask(options.mask_file)
        others = [size for size in sizes if size != mask.shape]
        if others:
            height, width = others[0]
            detail = f"{options.mask_file} is {mask.shape[0]} x {mask.shape[1]}, k-space {height} x {width}"
            return [failed("masks", detail, "use data of the mask's size, or a drawn mask")]
        return [ok("masks", f"{options.mask_file} samples {mask.mean():.3f} of k-space")]
    try:
        shares = [_drawn(options, sizes[0], draw).mean() for draw in range(MASKS_DRAWN)]
    except ValueError as error:
        return [failed("masks", str(error), "lower data.degradation.center_fractions")]
    share, asked = float(np.mean(shares)), options.nominal_fraction
    detail = f"{options.mask} samples {share:.3f} of {sizes[0][0]} x {sizes[0][1]}, asked for {asked:.3f}"
    if abs(share - asked) > SHARE_TOLERANCE:
        return [warning("masks", detail, "results will state the share really sampled")]
    if options.mask in SWINMR_KINDS:
        detail += f"; {NOT_SWINMRS}"
    return [ok("masks", detail)]


def _drawn(options, shape_hw: tuple[int, int], draw: int):
    import numpy as np

    from swinmr_profiling.training.degradation.fastmri_masks import fastmri_mask
    from swinmr_profiling.training.degradation.masks import draw_mask

    if options.is_fastmri:
        state = np.random.RandomState([options.seed, draw])
        return fastmri_mask(options.mask, shape_hw, options.accelerations, options.center_fractions, state)
    rng = np.random.default_rng([options.seed, draw])
    return draw_mask(options.mask, shape_hw, options.nominal_fraction, rng, options.center_fraction)
