"""Faults that a setup may have, planted one by one: each is told before the training, by the check that is meant to."""

import json

import numpy as np
import PIL.Image
import pytest
import torch

from swinmr_profiling.configs import load_config
from swinmr_profiling.training.setup.setup_checks import SetupContext, run_checks
from swinmr_profiling.training.setup.setup_suite import CHECKS
from tests.training.conftest import TINY_RUN, merged
from tests.training.data.test_sources import write_fastmri

RUN = ("config", "data", "overlap", "masks", "model", "loss", "run folder", "disk")


def images(seed, slices=4, side=32):
    return np.random.default_rng(seed).random((slices, side, side)).astype(np.float32)


@pytest.fixture
def findings(tmp_path):
    """Plants a fault into a setup that passes and returns what is told; `changes` may hang on the folder."""

    def found(plant=lambda folder: None, changes=None):
        for seed, split in enumerate(("train", "val", "test")):
            (tmp_path / split).mkdir()
            np.save(tmp_path / split / "a.npy", images(seed))
        folders = {f"data.{split}_dir": split for split in ("train", "val", "test")}
        base = {"data.source": "npy", "data.batch_size": 1, **folders}
        raw = merged({**TINY_RUN, "paths": {"root": "runs"}}, base)
        del raw["data"]["phantom"]
        plant(tmp_path)
        (tmp_path / "c.json").write_text(json.dumps(merged(raw, changes or {})))
        context = SetupContext(str(tmp_path / "c.json"), lambda: 2**34, lambda context: 0, device_name="cpu")
        context.loaded = load_config(context.config_file)
        checks = [check for check in CHECKS if check.name in RUN and check.name != "config"]
        checks = [type(check)(check.name, check.run) for check in checks]
        return run_checks(checks, context)

    return found


def told(found, status):
    return [finding for finding in found if finding.status == status]


def test_a_sound_setup_passes(findings):
    found = findings()
    assert told(found, "failed") == []
    [overlap] = [finding for finding in found if finding.check == "overlap"]
    assert overlap.detail == "12 slices: in one set each"


def copied(source, destination, change=lambda array: array):
    def plant(folder):
        np.save(folder / destination, change(np.load(folder / source)))

    return plant


def as_png(folder):
    """The second slice of the test set, 8 bits: min and max are the levels 0 and 255."""
    image = np.load(folder / "test/a.npy")[1]
    grey = np.rint((image - image.min()) / np.ptp(image) * 255).astype(np.uint8)
    (folder / "train/a.npy").unlink()
    for name, levels in (("b.png", grey), ("c.png", grey.T[::-1])):
        PIL.Image.fromarray(levels).save(folder / "train" / name)


def spoiled(folder):
    volume = images(7)
    volume[2] = np.nan
    np.save(folder / "val/b.npy", volume)


def truncated(folder):
    content = (folder / "train/a.npy").read_bytes()
    (folder / "train/a.npy").write_bytes(content[: len(content) // 2])


def emptied(folder):
    (folder / "test/a.npy").unlink()


def uncentred_mask(folder):
    mask = np.zeros((32, 32))
    mask[:4, :4] = mask[-4:, -4:] = 1
    np.save(folder / "mask.npy", mask)


def other_mask(folder):
    mask = np.zeros((20, 20))
    mask[8:12, 8:12] = 1
    np.save(folder / "mask.npy", mask)


def kspace_as_image(folder):
    np.save(folder / "train/a.npy", np.fft.fftshift(np.fft.fft2(images(1)), axes=(-2, -1)))


def undersampled(folder):
    (folder / "train/a.npy").unlink()
    write_fastmri(folder / "train/a.h5", images(1) + 0j, mask=np.ones(32))


def other_weights(folder):
    torch.save({"conv_first.weight": torch.zeros(3, 1, 3, 3)}, folder / "start.pth")


MASK_FILE = {"data.degradation": {"mask": "file", "mask_file": "mask.npy"}}
WIDE = "a.npy: is 32 x 32, smaller than the patch 48 x 48"
FAULTS = {
    "train is val and test": (None, {f"data.{s}_dir": "train" for s in ("val", "test")}, "overlap",
                              "4 slices of val are in train too"),
    "a test volume in train": (copied("test/a.npy", "train/copy.npy"), {}, "overlap",
                               "4 slices of test are in train too: copy.npy, slice 0 = a.npy, slice 0"),
    "a single slice": (copied("val/a.npy", "train/one.npy", lambda a: a[2]), {}, "overlap",
                       "1 slices of val are in train too: one.npy, slice 0 = a.npy, slice 2"),
    "the same slice in other units": (copied("test/a.npy", "val/mm.npy", lambda a: 1000 * a + 3), {}, "overlap",
                                      "4 slices of test are in val too"),
    "a mirrored and turned copy": (copied("test/a.npy", "val/turned.npy", lambda a: np.rot90(a[:, ::-1], 1, (1, 2))),
                                   {}, "overlap", "4 slices of test are in val too"),
    "a copy as PNG": (as_png, {"data.source": "auto"}, "overlap", "1 slices of test are in train too"),
    "images of zeros": (copied("train/a.npy", "train/a.npy", np.zeros_like), {}, "overlap",
                        "train: all 4 slices are of one value (blank)"),
    "images of ones": (copied("test/a.npy", "test/a.npy", np.ones_like), {}, "overlap",
                       "test: all 4 slices are of one value (blank)"),
    "NaN": (spoiled, {}, "overlap",
            "val: b.npy, slice 2 has NaN or infinite values"),
    "a truncated file": (truncated, {}, "data train", "a.npy: cannot be read as .npy"),
    "an empty folder": (emptied, {}, "data test", "holds no .npy file"),
    "a folder that is not there": (None, {"data.val_dir": "vla"}, "data val", "no such folder (data.val_dir)"),
    "a patch larger than the images": (None, {"data.patch_size": 48, "model.img_size": 64}, "data train", WIDE),
    "sizes that do not stack": (copied("train/a.npy", "train/b.npy", lambda a: a[:, :24, :24]),
                                {"data.batch_size": 2, "data.patch_size": None}, "data train", "24 x 24"),
    "k-space as images": (kspace_as_image, {}, "data train", "is complex and is k-space"),
    "a layout of two readings": (copied("train/a.npy", "train/b.npy", lambda a: a[:, :, :20]), {}, "data train",
                                 "(slices, H, W) = 4 slices of 32 x 20, or (H, W, slices) = 20 slices of 4 x 32?"),
    "undersampled files": (undersampled, {"data.source": "auto"}, "data train", "is undersampled already"),
    "a mask of another size": (other_mask, MASK_FILE, "masks", "mask.npy is 20 x 20, k-space 32 x 32"),
    "a mask that is not centred": (uncentred_mask, MASK_FILE, "masks", "samples the corners of k-space more"),
    "weights of another network": (other_weights, {"training.initial_weights": "start.pth"}, "model",
                                   "start.pth: "),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_told_by_its_check(findings, name):
    plant, changes, check, words = FAULTS[name]
    found = findings(plant or (lambda folder: None), changes)
    failures = told(found, "failed")
    assert any(finding.check == check and words in finding.detail for finding in failures), failures
    assert all(finding.advice and "\n" not in finding.line() for finding in failures)


def test_some_blank_slices_are_a_warning_and_no_overlap(findings):
    """The first slice of a head is often empty, in every set."""

    def plant(folder):
        for split in ("train", "val"):
            copied(f"{split}/a.npy", f"{split}/a.npy", lambda a: a * np.arange(4)[:, None, None])(folder)

    found = findings(plant)
    assert told(found, "failed") == []
    details = [finding.detail for finding in told(found, "warning") if finding.check == "overlap"]
    assert details == [f"{split}: 1 of 4 slices are of one value (blank)" for split in ("train", "val")]
