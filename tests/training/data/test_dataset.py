"""Samples against numpy, what they depend on, augmentation, and data that cannot be used."""

import h5py
import numpy as np
import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.training.data.dataset import SampleKey, build_dataset, input_channels
from swinmr_profiling.training.errors import DataError
from tests.training.conftest import TINY_RUN, merged

FULL = {"sampled_fraction": 1.0}


def config(folder=None, model=None, seed=42, **data):
    model = {"net_type": "swinir", "img_size": 32, **(model or {})}
    folders = {} if folder is None else {f"{split}_dir": str(folder) for split in ("train", "val", "test")}
    return config_from_dict({"model": model, "data": {**folders, **data}, "system": {"seed": seed}})


def save(folder, name, *shape, seed=0):
    array = (50 + 100 * np.random.default_rng(seed).random(shape)).astype(np.float32)
    np.save(folder / name, array)
    return array


def centred_fft(image):
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image), norm="ortho"))


def centred_ifft(kspace):
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace), norm="ortho"))


def test_a_validation_sample_equals_numpy_step_by_step(tmp_path):
    (image,) = save(tmp_path, "a.npy", 1, 20, 16)
    mask = np.zeros((20, 16), dtype=bool)
    mask[:, [2, 5, 7, 8, 9, 13]] = True
    np.save(tmp_path.parent / "mask.npy", mask)
    degradation = {"mask": "file", "mask_file": str(tmp_path.parent / "mask.npy")}
    sample = build_dataset(config(tmp_path, degradation=degradation), "val")[0]
    low, high = image.min(), image.max()
    scaled = (image - low) / (high - low)
    np.testing.assert_allclose(sample["target"][0], scaled, atol=1e-6)
    zero_filled = np.abs(centred_ifft(centred_fft(scaled) * mask))
    np.testing.assert_allclose(sample["input"][0], zero_filled, atol=1e-6)
    assert sample["sampled_fraction"] == 6 / 16
    assert (sample["name"], sample["index"]) == ("a.npy, slice 0", 0)
    np.testing.assert_allclose(sample["target"][0] * sample["scale"] + sample["offset"], image, rtol=1e-5)


@pytest.mark.parametrize(
    ("normalisation", "offset", "scale"),
    # Values 0 to 100 in steps of 1, shifted by 10: the 99th percentile is 109.
    [("min_max", 10, 100), ("max", 0, 110), ("percentile", 0, 109), ("none", 0, 1)],
)
def test_normalisation_by_hand(tmp_path, normalisation, offset, scale):
    np.save(tmp_path / "a.npy", np.arange(10.0, 111.0).reshape(1, 101).repeat(8, axis=0))
    data = build_dataset(config(tmp_path, normalisation=normalisation, degradation=FULL), "val")
    assert (data[0]["offset"], data[0]["scale"]) == pytest.approx((offset, scale))
    assert data[0]["target"].max().item() == pytest.approx((110 - offset) / scale)
    torch.testing.assert_close(data[0]["input"], data[0]["target"], atol=1e-4, rtol=1e-5)


def test_a_percentile_of_background_falls_back_to_the_maximum(tmp_path):
    """One bright pixel of 256: the 99th percentile is 0, and values of 500 would reach the loss unscaled."""
    array = np.zeros((16, 16))
    array[3, 4] = 500
    np.save(tmp_path / "a.npy", array)
    assert build_dataset(config(tmp_path, normalisation="percentile"), "val")[0]["scale"] == 500


def test_a_slice_of_zeros_stays_zeros(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((16, 16)))
    sample = build_dataset(config(tmp_path), "val")[0]
    assert (sample["offset"], sample["scale"]) == (0.0, 1.0)
    assert torch.equal(sample["input"], torch.zeros(1, 16, 16))


def test_measured_kspace_of_several_coils_is_combined_and_cropped_to_the_target(tmp_path):
    rng = np.random.default_rng(0)
    coils = rng.standard_normal((3, 24, 20)) + 1j * rng.standard_normal((3, 24, 20))
    kspace = np.stack([centred_fft(coil) for coil in coils]).astype(np.complex64)
    rss = np.sqrt((np.abs(coils) ** 2).sum(0))[4:20, 2:18].astype(np.float32)
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["kspace"], file["reconstruction_rss"] = kspace[None], rss[None]
    data = build_dataset(config(tmp_path, degradation=FULL), "val")
    sample = data[0]
    # min_max of measured data is a scale alone: k-space bears no offset.
    assert (sample["offset"], sample["scale"]) == (0.0, pytest.approx(rss.max()))
    np.testing.assert_allclose(sample["target"][0], rss / rss.max(), rtol=1e-5)
    torch.testing.assert_close(sample["input"], sample["target"], atol=1e-5, rtol=1e-4)
    assert data.kspace_statement == "measured k-space"
    assert not data.describe()["kspace_simulated"]
    with pytest.raises(DataError, match=r"scan\.h5, slice 0: several coils .* set model\.in_chans to 1"):
        build_dataset(config(tmp_path, model={"in_chans": 2}), "val")[0]


def test_two_channels_are_the_real_and_imaginary_part(tmp_path):
    """Of one measured coil: the target's phase comes from the fully sampled k-space."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((16, 12)) + 1j * rng.standard_normal((16, 12))
    magnitude = np.abs(image).astype(np.float32)
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["kspace"] = centred_fft(image).astype(np.complex64)[None]
        file["reconstruction_esc"] = magnitude[None]
    sample = build_dataset(config(tmp_path, model={"in_chans": 2}, degradation=FULL), "val")[0]
    expected = np.stack([image.real, image.imag]) / magnitude.max()
    np.testing.assert_allclose(sample["target"], expected, atol=1e-5)
    np.testing.assert_allclose(sample["input"], expected, atol=1e-5)


def test_phantom_coils_are_combined_to_the_object_again():
    for coils in (1, 4):
        sample = build_dataset(config(phantom={"coils": coils}, degradation=FULL), "val")[0]
        torch.testing.assert_close(sample["input"], sample["target"], atol=1e-4, rtol=1e-4)
    three = build_dataset(config(model={"in_chans": 3}), "val")[0]
    assert torch.equal(three["input"][0], three["input"][2])


def test_noise_has_its_deviation_in_units_of_the_maximum(tmp_path):
    save(tmp_path, "a.npy", 128, 128)
    degradation = {**FULL, "noise_std": 0.2}
    sample = build_dataset(config(tmp_path, model={"in_chans": 2}, degradation=degradation), "val")[0]
    # Orthonormal: the image has the noise of k-space, 0.2 / sqrt(2) in each part; 32,768 values, so to 2 %.
    noise = sample["input"] - sample["target"]
    assert noise.std().item() == pytest.approx(0.2 / 2**0.5, rel=0.02)
    unsampled = {"sampled_fraction": 0.25, "noise_std": 0.2}
    sample = build_dataset(config(tmp_path, model={"in_chans": 2}, degradation=unsampled), "val")[0]
    clean = build_dataset(
        config(tmp_path, model={"in_chans": 2}, degradation={"sampled_fraction": 0.25}), "val"
    )[0]
    # Only sampled points are disturbed: a quarter of the power.
    assert (sample["input"] - clean["input"]).std().item() == pytest.approx(0.1 / 2**0.5, rel=0.03)


def test_validation_masks_are_the_same_every_epoch_whatever_else_is_there(tmp_path):
    save(tmp_path, "b.npy", 2, 32, 64)
    before = build_dataset(config(tmp_path, layout="slices_first"), "val")
    samples = [before[SampleKey(epoch, 1)]["input"] for epoch in (0, 0, 3)]
    assert torch.equal(samples[0], samples[1])
    assert torch.equal(samples[0], samples[2])
    assert not torch.equal(before[0]["input"], samples[0])
    save(tmp_path, "a.npy", 3, 32, 64)
    after = build_dataset(config(tmp_path, layout="slices_first", seed=7), "val")
    assert after.name(4) == before.name(1) == "b.npy, slice 1"
    assert torch.equal(after[4]["input"], samples[0])
    # Another degradation seed is another draw.
    other = build_dataset(config(tmp_path, layout="slices_first", degradation={"seed": 1}), "val")
    assert not torch.equal(other[4]["input"], samples[0])


def test_training_masks_differ_by_epoch_index_repeat_and_seed_and_by_nothing_else(tmp_path):
    array = save(tmp_path, "a.npy", 1, 32, 64)
    np.save(tmp_path / "b.npy", array)  # the same image under another index
    plain = {"augmentation": {"random_flip": False, "random_rotation": False}}
    data = build_dataset(config(tmp_path, **plain), "train")
    reference = data[SampleKey(0, 0)]["input"]
    assert torch.equal(reference, build_dataset(config(tmp_path, **plain), "train")[0]["input"])
    others = [data[key]["input"] for key in (SampleKey(1, 0), SampleKey(0, 1), SampleKey(0, 0, 1))]
    others.append(build_dataset(config(tmp_path, seed=1, **plain), "train")[0]["input"])
    assert not any(torch.equal(reference, other) for other in others)


def test_patches_are_cut_from_input_and_target_alike(tmp_path):
    image = save(tmp_path, "a.npy", 40, 32)
    data = build_dataset(
        config(tmp_path, patch_size=[16, 24], model={"window_size": 4}, degradation=FULL), "train"
    )
    scaled = torch.from_numpy((image - image.min()) / (image.max() - image.min()))
    places = set()
    for epoch in range(40):
        sample = data[SampleKey(epoch, 0)]
        assert sample["input"].shape == (1, 16, 24)
        torch.testing.assert_close(sample["input"], sample["target"], atol=1e-5, rtol=1e-5)
        # Oblong patches keep their shape: turned by 0 or 180 degrees, flipped or not.
        turned = [sample["target"][0].rot90(k).flip(f) for k in (0, 2) for f in ([], [-1])]
        windows = scaled.unfold(0, 16, 1).unfold(1, 24, 1)
        found = [
            tuple(place.tolist())
            for patch in turned
            for place in ((windows - patch).abs().amax((-2, -1)) < 1e-5).nonzero()
        ]
        assert len(found) == 1
        places.add(found[0])
    assert len(places) > 30  # of 25 x 9 places


def test_square_images_are_turned_in_all_eight_ways(tmp_path):
    image = save(tmp_path, "a.npy", 12, 12)
    scaled = torch.from_numpy((image - image.min()) / (image.max() - image.min()))
    ways = [scaled.rot90(k).flip(f) for k in range(4) for f in ([], [-1])]
    data = build_dataset(config(tmp_path, degradation=FULL), "train")
    seen = set()
    for epoch in range(100):
        target = data[SampleKey(epoch, 0)]["target"][0]
        seen.add(next(i for i, way in enumerate(ways) if torch.allclose(way, target, atol=1e-6)))
    assert seen == set(range(8))
    off = {"augmentation": {"flip_probability": 0.0, "random_rotation": False}}
    data = build_dataset(config(tmp_path, degradation=FULL, **off), "train")
    assert all(torch.allclose(data[SampleKey(e, 0)]["target"][0], scaled, atol=1e-6) for e in range(20))


def test_validation_takes_whole_images_without_augmentation(tmp_path):
    image = save(tmp_path, "a.npy", 32, 32)
    sample = build_dataset(config(tmp_path, patch_size=16), "val")[0]
    np.testing.assert_allclose(sample["target"][0], (image - image.min()) / np.ptp(image), atol=1e-6)


def test_what_is_recorded_of_the_data(tmp_path):
    save(tmp_path, "a.npy", 3, 16, 16)
    described = build_dataset(config(tmp_path, degradation={"acceleration": 4}), "val").describe()
    assert (described["volumes"], described["slices"], described["nominal_fraction"]) == (1, 3, 0.25)
    assert described["kspace"].startswith("k-space simulated from magnitude images")
    assert described["kspace_simulated"] is True
    assert build_dataset(config(), "val").kspace_statement == "k-space simulated from complex images"


def test_the_channels_are_the_networks(tmp_path):
    custom = {"net_type": "custom", "target": "own:Net", "input_shapes": [[2, 8, 8]]}
    assert input_channels(config_from_dict({"model": custom})) == 2
    assert input_channels(config_from_dict({"model": {"net_type": "timm", "name": "resnet18"}})) == 3
    assert input_channels(config()) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_nan_slice_is_named(tmp_path, bad):
    array = np.ones((3, 16, 16))
    array[1, 2, 3] = bad
    np.save(tmp_path / "a.npy", array)
    data = build_dataset(config(tmp_path), "train")
    data[0]
    with pytest.raises(DataError, match=r"^a\.npy, slice 1: the image has 1 NaN or infinite values; repair"):
        data[1]


def test_a_nan_in_measured_kspace_is_named(tmp_path):
    kspace = np.ones((1, 8, 8), dtype=np.complex64)
    kspace[0, 1, 1] = np.nan
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["kspace"], file["reconstruction_esc"] = kspace, np.ones((1, 8, 8))
    with pytest.raises(DataError, match=r"^scan\.h5, slice 0: k-space has 1 NaN"):
        build_dataset(config(tmp_path), "train")[0]


def test_negative_magnitudes_are_named(tmp_path):
    np.save(tmp_path / "a.npy", np.linspace(-1, 1, 256).reshape(16, 16))
    assert build_dataset(config(tmp_path), "val")[0]["target"].min() == 0
    with pytest.raises(DataError, match=r'a\.npy, slice 0: has negative values.*normalisation to "min_max"'):
        build_dataset(config(tmp_path, normalisation="max"), "val")[0]


def test_a_volume_smaller_than_the_patch_is_named(tmp_path):
    save(tmp_path, "a.npy", 32, 32)
    save(tmp_path, "b.npy", 32, 12)
    with pytest.raises(
        DataError, match=r"^b\.npy: is 32 x 12, smaller than the patch 16 x 16 \(data\.patch_size\)"
    ):
        build_dataset(config(tmp_path, patch_size=16), "train")
    build_dataset(config(tmp_path, patch_size=16), "val")  # whole images there


def test_a_mask_file_of_another_size_is_named(tmp_path):
    np.save(tmp_path / "mask.npy", np.ones((16, 16)))
    (tmp_path / "data").mkdir()
    save(tmp_path / "data", "a.npy", 16, 24)
    degradation = {"mask": "file", "mask_file": str(tmp_path / "mask.npy")}
    with pytest.raises(DataError, match=r"mask\.npy: is 16 x 16, but a\.npy has k-space of 16 x 24"):
        build_dataset(config(tmp_path / "data", degradation=degradation), "val")


def test_enlarging_networks_are_refused_with_the_key():
    model = {"upscale": 2, "upsampler": "pixelshuffle"}
    with pytest.raises(DataError, match=r"^model\.upscale is 2"):
        build_dataset(config(model=model), "train")


def test_fixed_mask_is_one_for_all_splits_and_epochs():
    config = merged(TINY_RUN, {"data.degradation": {"mask": "gaussian1d", "fixed": True, "seed": 4}})
    train = build_dataset(config_from_dict(config), "train")
    val = build_dataset(config_from_dict(config), "val")

    def draw(dataset, key):
        return dataset.masks.mask(dataset.volumes[0], dataset.masks.generator(key.seed, "slice"))

    first = draw(train, SampleKey(0, 0))
    assert all(np.array_equal(first, draw(train, SampleKey(epoch, 3))) for epoch in range(3))
    assert np.array_equal(first, draw(val, SampleKey(0, 1)))
    other = merged(config, {"data.degradation.seed": 5})
    assert not np.array_equal(first, draw(build_dataset(config_from_dict(other), "train"), SampleKey(0, 0)))
    drawn_anew = merged(config, {"data.degradation.fixed": False})
    train = build_dataset(config_from_dict(drawn_anew), "train")
    assert not np.array_equal(draw(train, SampleKey(0, 0)), draw(train, SampleKey(1, 0)))
