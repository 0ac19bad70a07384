"""The real MRI that comes with packages: what is read, and that no set leaks into another."""

import importlib

import nibabel
import numpy as np
import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.dataset import build_dataset
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.data.packaged import HEAD_POSITIONS, open_packaged
from swinmr_profiling.training.errors import DataError


@pytest.mark.slow
def test_packaged_data_is_split_by_position_with_guards():
    head = nibabel.load(f"{nibabel.__path__[0]}/tests/data/example4d.nii.gz").get_fdata()
    seen = {}
    for split in ("train", "val", "test"):
        volumes = [v for v in open_packaged(split) if v.name.startswith("nibabel")]
        assert {tuple(v.positions) for v in volumes} == {tuple(HEAD_POSITIONS[split])}
        assert [v.time for v in volumes] == [0, 1]  # both times of a position are in one set
        seen[split] = set(volumes[0].positions)
        for volume in volumes:
            for i, position in enumerate(volume.positions):
                np.testing.assert_array_equal(volume.read(i).image, head[:, :, position, volume.time])
    # No position is in two sets, nor next to one of another set.
    for split, positions in seen.items():
        others = set().union(*(p for name, p in seen.items() if name != split))
        assert not {q for p in positions for q in (p - 1, p, p + 1)} & others
    assert sum(map(len, seen.values())) == 24 - 2  # two guards


def test_packaged_t1_is_for_training_and_read_big_endian():
    (t1,) = [v for v in open_packaged("train") if v.name == "matplotlib s1045"]
    image = t1.read(0).image
    assert image.shape == (256, 256)
    assert image.max() < 256  # read the other way round it would be 55040
    assert not any(v.name == "matplotlib s1045" for split in ("val", "test") for v in open_packaged(split))


def config(**data):
    model = {"net_type": "swinir", "img_size": [128, 96]}
    return config_from_dict({"model": model, "data": {"source": "packaged", "num_workers": 0, **data}})


def test_sets_have_their_sizes_and_patches_stack():
    """15, 3 and 4 positions at 2 times; the T1 slice is of another size and stacks only as patches."""
    sizes = [len(build_dataset(config(patch_size=64), split)) for split in ("train", "val", "test")]
    assert sizes == [15 * 2 + 1, 3 * 2, 4 * 2]
    batch = next(iter(build_loader(config(patch_size=64, batch_size=8), "train")))
    assert batch["input"].shape == (8, 1, 64, 64)
    with pytest.raises(
        DataError, match=r"2 sizes .*: nibabel example4d.* 128 x 96, matplotlib s1045 is 256 x 256"
    ):
        build_loader(config(batch_size=8), "train")
    assert "simulated from magnitude images" in build_dataset(config(), "val").kspace_statement


@pytest.mark.parametrize("package", ["nibabel", "matplotlib"])
def test_a_missing_package_is_said_before_training_starts(monkeypatch, package):
    real = importlib.import_module

    def without(name, *arguments):
        if name == package:
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", without)
    for cached in ("_head", "_t1"):
        getattr(importlib.import_module("swinmr_profiling.training.data.packaged"), cached).cache_clear()
    with pytest.raises(DataError, match=f"the packaged data needs the package {package}"):
        build_dataset(config(patch_size=64), "train")
