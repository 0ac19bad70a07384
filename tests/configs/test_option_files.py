"""Option files of BasicSR, traiNNer-redux, neosr, KAIR and SwinMR, each against what its framework makes of it.

The files in option_files/ are laid out as the public ones are. What stands here was read off them by hand: batch per
GPU, patch in pixels of the network's input (`gt_size` over the scale), losses with their weights, EMA, precision.
"""

import json
from pathlib import Path

import pytest

from swinmr_profiling.configs import ConfigError, load_config
from swinmr_profiling.configs.option_files.imported import GivenClass
from swinmr_profiling.configs.option_files.losses import vgg19_layers
from swinmr_profiling.models.restoration.build import NETWORKS
from tests.conftest import run_command

FOLDER = Path(__file__).parent / "option_files"
RRDB = {"in_nc": 3, "out_nc": 3, "num_filters": 64, "num_blocks": 23}
VGG = {2: 0.1, 7: 0.1, 16: 1, 25: 1, 34: 1}
# file: (network, some of its arguments, batch, patch, accumulate, optimizer, learning rate, losses, EMA, precision)
EXPECTED = {
    "basicsr_rrdbnet_psnr_x4.yml": (
        "ESRGAN", {**RRDB, "scale": 4}, 16, 32, 1, "adam", 2e-4, {"l1": 1}, 0.999, False
    ),
    "basicsr_esrgan_x4.yml": (
        "ESRGAN", {**RRDB, "scale": 4}, 16, 32, 1, "adam", 1e-4, {"l1": 0.01, "vgg": (1, {34: 1})}, 0.999, False
    ),
    # RRDBNet x2 takes each 2 x 2 pixels as channels (3 x 4) and enlarges by 4; the top level crops to 256.
    "basicsr_realesrgan_x2.yml": (
        "ESRGAN", {**RRDB, "in_nc": 12, "shuffle_factor": 2, "scale": 4}, 12, 128, 1, "adam", 1e-4,
        {"l1": 1, "vgg": (1, VGG)}, 0.999, False,
    ),
    "basicsr_realesrnet_x4.yml": (
        "ESRGAN", {**RRDB, "scale": 4}, 12, 64, 1, "adam", 1e-4, {"l1": 1}, 0.999, False
    ),
    "basicsr_srvgg_x4.yml": (
        "Compact", {"num_conv": 32, "upscale": 4}, 32, 32, 1, "adam", 1e-4, {"charbonnier": 1}, 0.999, False
    ),
    "basicsr_swinir_x2.yml": (
        "swinir", {"upscale": 2, "embed_dim": 180, "upsampler": "pixelshuffle"}, 4, 48, 1, "adam", 2e-4, {"l1": 1},
        0.999, False,
    ),
    "basicsr_rcan_x2.yml": (
        "RCAN", {"scale": 2, "n_resgroups": 10, "n_resblocks": 20, "n_colors": 3, "norm": False}, 16, 48, 1, "adam",
        1e-4, {"l1": 1}, 0.999, False,
    ),
    # 144 / 3; the scale and the optimizer come from anchors.
    "basicsr_edsr_l_x3.yml": (
        "EDSR", {"num_feat": 256, "num_block": 32, "upscale": 3, "res_scale": 0.1}, 16, 48, 1, "adam", 1e-4,
        {"l1": 1}, 0.999, False,
    ),
    "basicsr_msrgan_x4.yml": (
        "MSRResNet", {"num_feat": 64, "num_block": 16, "upscale": 4}, 16, 32, 1, "adam", 1e-4,
        {"l1": 0.01, "vgg": (1, {34: 1})}, 0.999, False,
    ),
    "basicsr_basicvsr_reds.yml": (
        "BasicVSR", {"num_feat": 64, "num_block": 30}, 4, 64, 1, "adam", 2e-4, {"charbonnier": 1}, 0.999, False
    ),
    # 100 / 4; no ema_decay, which is none in BasicSR; "1e-4" is a text to YAML.
    "basicsr_rrdbnet_small_adamw.yml": (
        "ESRGAN", {"num_filters": 32, "num_blocks": 6, "in_nc": 1}, 8, 25, 1, "adamw", 1e-4, {"mse": 0.5}, 0, False
    ),
    "trainner_realplksr_gan.yml": (
        "RealPLKSR", {"upscaling_factor": 4, "dysample": False, "layer_norm": True}, 16, 96, 1, "adamw", 1e-4,
        {"vgg": (0.01, VGG)}, 0.999, "fp16",
    ),
    "trainner_realplksr_dysample.yml": (
        "RealPLKSR", {"upscaling_factor": 2, "dysample": True, "layer_norm": False}, 8, 64, 2, "adamw", 1e-4,
        {"charbonnier": 1}, 0.999, "bf16",
    ),
    "trainner_esrgan_x2.yml": (
        "ESRGAN", {"in_nc": 12, "shuffle_factor": 2, "scale": 4}, 8, 64, 1, "adamw", 1e-4, {"charbonnier": 1}, 0.999,
        False,
    ),
    "trainner_esrgan_lite.yml": (
        "ESRGAN", {"num_filters": 32, "num_blocks": 12, "scale": 4}, 12, 48, 1, "adamw", 1e-4, {"charbonnier": 1},
        0.999, "bf16",
    ),
    "trainner_compact.yml": (
        "Compact", {"num_feat": 64, "num_conv": 16, "upscale": 2}, 32, 64, 1, "adamw", 1e-4, {"charbonnier": 1}, 0,
        "bf16",
    ),
    "trainner_span.yml": (
        "SPAN", {"feature_channels": 52, "upscale": 4, "norm": False}, 16, 64, 1, "adamw", 1e-4, {"charbonnier": 1},
        0.999, "bf16",
    ),
    "trainner_swinir_s.yml": (
        "swinir", {"upscale": 4, "embed_dim": 60, "depths": [6] * 4, "upsampler": "pixelshuffledirect"}, 4, 64, 4,
        "adamw", 1e-4, {"charbonnier": 1}, 0.999, "bf16",
    ),
    "trainner_hat_m.yml": (
        "HAT", {"upscale": 4, "embed_dim": 180, "depths": [6] * 6, "window_size": 16, "use_checkpoint": False}, 4, 64,
        1, "adamw", 1e-4, {"charbonnier": 1}, 0.999, "bf16",
    ),
    "trainner_dat_light.yml": (
        "DAT", {"upscale": 3, "embed_dim": 60, "depth": [18], "split_size": [8, 32]}, 4, 48, 1, "adamw", 1e-4,
        {"charbonnier": 1}, 0.999, False,
    ),
    "trainner_omnisr.yml": (
        "OmniSR", {"up_scale": 4, "res_num": 5}, 8, 64, 1, "adamw", 1e-4, {"charbonnier": 1}, 0.999, "fp16"
    ),
    # None of its losses has a counterpart: L1 stands in, and is said to.
    "neosr_realplksr_gan.toml": (
        "RealPLKSR", {"upscaling_factor": 4}, 8, 64, 1, "adamw", 1e-3, {"l1": 1}, 0.999, "bf16"
    ),
    "neosr_compact.toml": (
        "Compact", {"upscale": 2}, 16, 64, 1, "adamw", 5e-4, {"l1": 1}, 0.999, "bf16"
    ),
    "neosr_esrgan.toml": (
        "ESRGAN", {"num_blocks": 12, "scale": 4}, 6, 48, 4, "adamw", 5e-4, {"vgg": (0.5, VGG)}, 0.999, "bf16"
    ),
    "neosr_span.toml": (
        "SPAN", {"feature_channels": 48, "upscale": 4}, 16, 64, 1, "adamw", 5e-4, {"mse": 1}, 0.999, False
    ),
    "neosr_swinir_small.toml": (
        "swinir", {"upscale": 4, "embed_dim": 60, "upsampler": "pixelshuffledirect"}, 8, 64, 1, "adamw", 5e-4,
        {"l1": 1}, 0.999, "bf16",
    ),
    "neosr_atd.toml": (
        "ATD", {"upscale": 4, "embed_dim": 210, "num_tokens": 128, "norm": False}, 2, 64, 1, "adamw", 5e-4, {"l1": 1},
        0.999, "bf16",
    ),
    "kair_dncnn.json": (
        "DnCNN", {"nb": 17, "act_mode": "BR", "mode": "DnCNN"}, 64, 40, 1, "adam", 1e-4, {"l1": 1}, 0, False
    ),
    "kair_fdncnn.json": (
        "DnCNN", {"nb": 20, "in_nc": 2, "act_mode": "R", "mode": "FDnCNN"}, 64, 48, 1, "adam", 1e-4, {"l1": 1}, 0, False
    ),
    # 64 for four GPUs.
    "kair_drunet.json": (
        "DRUNet", {"in_nc": 4, "nc": [64, 128, 256, 512]}, 16, 128, 1, "adam", 1e-4, {"l1": 1}, 0, False
    ),
    # 96 / 4.
    "kair_msrresnet_psnr.json": (
        "MSRResNet0", {"nc": 64, "nb": 16, "upscale": 4, "upsample_mode": "upconv"}, 32, 24, 1, "adam", 1e-4,
        {"l1": 1}, 0.999, False,
    ),
    "kair_ffdnet.json": (
        "FFDNet", {"in_nc": 1, "nc": 64, "nb": 15, "act_mode": "R"}, 64, 64, 1, "adam", 1e-4, {"l1": 1}, 0, False
    ),
    # The blind degradation crops to lq_patchsize, whatever H_size is.
    "kair_bsrgan_psnr.json": ("ESRGAN", {**RRDB, "scale": 4}, 4, 72, 1, "adam", 1e-4, {"l1": 1}, 0.999, False),
    "kair_bsrgan_gan.json": (
        "ESRGAN", {**RRDB, "scale": 4}, 4, 72, 1, "adam", 1e-4, {"l1": 1, "vgg": (1, VGG)}, 0.999, False
    ),
    "kair_swinir_gray.json": (
        "swinir", {"in_chans": 1, "upscale": 1}, 1, 128, 1, "adam", 1e-4, {"charbonnier": 1}, 0.999, False
    ),
    "kair_swinir_lightweight_x2.json": (
        "swinir", {"upscale": 2, "upsampler": "pixelshuffledirect"}, 32, 64, 1, "adam", 1e-4, {"l1": 1}, 0.999, False
    ),
    "swinmr_seed.json": (
        "swinir", {"embed_dim": 60, "in_chans": 1}, 8, 96, 1, "adam", 1e-4,
        {"charbonnier": 15, "k-space": 0.1, "vgg": (0.0025, VGG)}, 0.999, False,
    ),
}  # fmt: skip


def losses_of(config):
    """Kind -> weight of the parts that are on; of VGG19 the layers' too."""
    parts = config.training.loss.components
    found = {}
    if parts.spatial.weight:
        found[parts.spatial.type] = parts.spatial.weight
    if parts.frequency.weight:
        found["k-space"] = parts.frequency.weight
    if parts.perceptual.weight:
        layers = dict(zip(parts.perceptual.layers, parts.perceptual.layer_weights, strict=True))
        found["vgg"] = (parts.perceptual.weight, layers)
    if parts.ssim.weight:
        found["ssim"] = parts.ssim.weight
    return found


def test_every_file_has_an_expectation():
    assert {file.name for file in FOLDER.iterdir()} == set(EXPECTED)
    assert len(EXPECTED) >= 30


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_is_what_its_framework_makes_of_it(name):
    network, arguments, batch, patch, accumulate, optimizer, lr, losses, ema, precision = EXPECTED[name]
    config = load_config(FOLDER / name).config
    model = config.model
    if network == "swinir":
        assert model.net_type == "swinir"
        given = {key: getattr(model, key) for key in arguments}
    else:
        assert (model.net_type, model.architecture) == (
            "restoration" if network in NETWORKS else "spandrel",
            network,
        )
        assert config.training.loss.type == "multi_component"  # "auto" would be L1 alone
        given = {key: model.kwargs.get(key) for key in arguments}
    assert given == arguments
    assert (config.data.batch_size, config.training_patch_hw) == (batch, (patch, patch))
    assert config.training.accumulate == accumulate
    assert (config.training.optimizer.type, config.training.optimizer.lr) == (optimizer, lr)
    assert losses_of(config) == losses
    assert config.training.ema_decay == ema
    assert config.system.mixed_precision == precision


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_saved_as_ours_loads_as_the_same_config(name, tmp_path):
    loaded = load_config(FOLDER / name)
    (tmp_path / "ours.json").write_text(loaded.as_file())
    again = load_config(tmp_path / "ours.json")
    ours, theirs = (
        one.config.model_dump(exclude={"paths": True, "training": {"profile"}}) for one in (again, loaded)
    )
    assert ours == theirs


def messages_of(name):
    return "\n".join(load_config(FOLDER / name).messages)


def test_what_changes_the_cost_is_named_once():
    text = messages_of("basicsr_realesrgan_x2.yml")
    assert text.count("network_d UNetDiscriminatorSN is not used by model_type SRModel") == 1
    assert text.count("queue_size (pairs kept on the GPU)") == 1
    text = messages_of("neosr_realplksr_gan.toml")
    assert text.count("train.optim_g.type adan_sf has no counterpart: AdamW stands in") == 1
    assert (
        "mssim_loss (1, train.mssim_opt), consistency_loss (1, train.consistency_opt); L1 stands in" in text
    )
    text = messages_of("trainner_realplksr_gan.yml")
    assert "mssimloss (0.5, train.losses.0), hsluvloss (1, train.losses.2)" in text
    assert "distsloss" not in text  # its weight is 0
    assert "netD discriminator_unet: training is predicted as KAIR" in messages_of("kair_bsrgan_gan.json")


def test_a_video_has_its_frames():
    loaded = load_config(FOLDER / "basicsr_basicvsr_reds.yml")
    assert loaded.config.model.frames == 15
    assert "train.fix_flow (a part that is not trained at first)" in "\n".join(loaded.messages)


@pytest.mark.parametrize(("flipped", "frames"), [("false", 7), ("true", 14)])
def test_all_frames_of_vimeo_are_seven_or_twice_that(tmp_path, flipped, frames):
    text = (FOLDER / "basicsr_basicvsr_reds.yml").read_text()
    file = tmp_path / "o.yml"
    file.write_text(text.replace("num_frame: 15", f"num_frame: -1\n    flip_sequence: {flipped}"))
    assert load_config(file).config.model.frames == frames


def test_milestones_in_any_order_are_those_that_the_framework_meets(tmp_path):
    text = (FOLDER / "basicsr_edsr_l_x3.yml").read_text()
    (tmp_path / "o.yml").write_text(text.replace("[200000]", "[800000, 1200000, 140000]"))
    loaded = load_config(tmp_path / "o.yml")
    assert loaded.config.training.scheduler.milestones == [140_000, 800_000, 1_200_000]
    assert "do not rise, and are taken as [140000, 800000, 1200000]" in "\n".join(loaded.messages)


def test_milestones_of_basicsr_are_completed_steps():
    """Its schedule moves before a step, from the second on: step 200,001 is the first at the new rate. KAIR's counts
    the step that is to come, so its 200,000th is."""
    assert load_config(FOLDER / "basicsr_edsr_l_x3.yml").config.training.scheduler.milestones == [200_000]
    assert load_config(FOLDER / "kair_ffdnet.json").config.training.scheduler.milestones == [199_999, 399_999]


def given(kwargs=None, shapes=None):
    return GivenClass("man.py:MAN", "/archs", kwargs, shapes)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        # traiNNer-redux hands its scale down; BasicSR's is among the arguments; KAIR's are the user's to name.
        ("trainner_span.yml", {"scale": 4}),
        ("basicsr_edsr_l_x3.yml", {"num_in_ch": 3, "upscale": 3, "num_feat": 256}),
        ("neosr_esrgan.toml", {"num_block": 12}),
        ("kair_dncnn.json", {"in_nc": 1, "nb": 17}),
    ],
)
def test_a_class_stands_for_the_network_of_an_option_file(name, kwargs):
    """All but the network stays what the file says."""
    theirs, ours = load_config(FOLDER / name), load_config(FOLDER / name, network=given())
    model = ours.config.model
    assert (model.net_type, model.target, model.target_folder) == ("custom", "man.py:MAN", "/archs")
    assert kwargs.items() <= model.kwargs.items()
    assert not {"type", "net_type", "init_type"} & model.kwargs.keys()
    side, channels = theirs.config.training_patch_hw[0], 1 if "kair" in name else 3
    assert model.input_shapes == [[channels, 256, 256]]
    assert model.training_input_shapes == [[channels, side, side]]
    for section in ("data", "training", "system"):
        assert getattr(theirs.config, section) == getattr(ours.config, section)
    assert any("the class man.py:MAN stands for it" in message for message in ours.messages)


def test_arguments_and_inputs_given_beside_an_option_file_are_taken_as_they_are():
    model = load_config(FOLDER / "kair_dncnn.json", network=given({"dim": 3}, [[1, 8, 8], [4]])).config.model
    assert (model.kwargs, model.input_shapes, model.training_input_shapes) == (
        {"dim": 3},
        [[1, 8, 8], [4]],
        None,
    )


def test_a_class_beside_a_config_of_our_own_is_refused(tmp_path):
    (tmp_path / "ours.json").write_text('{"model": {"net_type": "swinir"}}')
    with pytest.raises(ConfigError, match="names its own model: --module stands for the network of another"):
        load_config(tmp_path / "ours.json", network=given())


def test_clipping_and_layout_are_the_frameworks_own_defaults():
    clip = {name: load_config(FOLDER / name).config.training.gradient.clip_norm for name in EXPECTED}
    # neosr clips to 1 unless told not to; traiNNer-redux only where it says so.
    assert clip["neosr_span.toml"] == 1.0
    assert clip["neosr_compact.toml"] is None
    assert clip["trainner_span.yml"] == 100.0
    assert clip["trainner_compact.yml"] is None
    layout = {name: load_config(FOLDER / name).config.system.channels_last for name in EXPECTED}
    assert layout["trainner_esrgan_lite.yml"]
    assert not layout["trainner_esrgan_x2.yml"]  # without mixed precision it is not taken
    assert layout["neosr_span.toml"]
    assert not layout["basicsr_esrgan_x4.yml"]


def test_seeds_are_where_each_framework_has_them():
    assert load_config(FOLDER / "swinmr_seed.json").config.system.seed == 77  # train.manual_seed is null
    assert load_config(FOLDER / "neosr_span.toml").config.system.seed == 1024
    assert load_config(FOLDER / "basicsr_esrgan_x4.yml").config.system.seed == 0


def test_layers_of_vgg19_by_name():
    # torchvision's vgg19().features: 2 convolutions and ReLUs, a pool; 2; 4; 4; 4.
    layers = vgg19_layers()
    assert [layers[f"conv{name}"] for name in ("1_2", "2_2", "3_4", "4_4", "5_4")] == [2, 7, 16, 25, 34]
    assert (layers["relu5_4"], layers["pool1"], len(layers)) == (35, 4, 37)


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        ("type: EDVR", 'network_g.type: "EDVR" of BasicSR is not a network that is known here'),
        ("type: RRDBnet", "did you mean RRDBNet?"),
        (
            "{type: RRDBNet, num_grow_ch: 16}",
            "network_g.num_grow_ch: 16 makes another network than spandrel's ESRGAN",
        ),
        ("{type: RRDBNet, num_fat: 16}", "network_g.num_fat: no counterpart in spandrel's ESRGAN"),
        ("type: 3", "network_g.type: 3 of BasicSR is not a network"),
        ("type: [a]", 'network_g.type: ["a"] of BasicSR is not a network'),
    ],
)
def test_what_would_be_another_network_is_refused_in_one_line(tmp_path, network, problem):
    file = tmp_path / "o.yml"
    body = network if network.startswith("{") else "{" + network + "}"
    file.write_text(f"name: a\nscale: 4\nnetwork_g: {body}\ndatasets: {{}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.yml", "- 1\n- 2\n", "the top level is a list"),
        ("a.yml", "", "the file is empty"),
        ("a.yml", "a: [1\nb: 2", "broken YAML at line 2"),
        (
            "a.yml",
            "services: {web: {image: nginx}}\nversion: '3'\n",
            "is not a config: its top level has services, version",
        ),
        ("a.yml", "a: !!python/object/apply:os.system ['true']\n", "broken YAML at line 1"),
        ("a.toml", "a = \n", "broken TOML"),
        ("a.toml", "[tool.ruff]\nline-length = 1\n", "is not a config: its top level has tool"),
        ("a.json", '{"schema_version": 9, "architecture": {}}', "is a profile, not a config"),
        ("a.json", '{"noise": {}, "undersampling": {}}', "is a degradation file (noise, undersampling)"),
        ("degradation_all.json", '{"name": "x", "execution": {}}', "is a degradation file (by its name)"),
        (
            "config.json",
            '{"model_type": "bert", "architectures": ["BertModel"]}',
            '"net_type": "transformers"',
        ),
        ("config.json", '{"_class_name": "UNet2DModel"}', '"net_type": "diffusers", "class": "UNet2DModel"'),
        ("a.json", '{"pipeline": {}, "denoiser": {}}', "scripts/profile_pipeline.py --pipeline"),
        ("net.py", "class A: pass", "--module"),
        ("model.pth", "whatever", "--checkpoint"),
        ("weights", b"PK\x03\x04....", "--checkpoint"),
    ],
)
def test_what_is_no_config_says_what_it_is(tmp_path, name, content, told):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_say_what_they_are(tmp_path):
    for name, told in (("model_index.json", "--pipeline-dir"), ("config.json", '"net_type": "transformers"')):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("{}")
        with pytest.raises(ConfigError, match="is the folder of a") as caught:
            load_config(folder)
        assert told in str(caught.value)
    with pytest.raises(ConfigError, match="is a folder: name a JSON, YAML or TOML file in it"):
        load_config(tmp_path)


def test_the_public_config_of_swinmr_mriwizard_loads(tmp_path):
    # Its keys, as they are published; the network and the recipe are those of configs/train_config.json.
    raw = {
        "experiment_name": "swinmr_mriwizard_hybrid",
        "data": {"degradation_config": "./degradation_modrate.json", "batch_size": 4, "patch_size": 160},
        "model": {"net_type": "swinir", "embed_dim": 60, "upsampler": "", "init_type": "xavier_uniform"},
        "training": {
            "epochs": 100, "print_freq": 100, "save_freq": 1000, "val_freq": 1, "checkpoint_freq": 1,
            "early_stopping": {"enabled": True, "metric": "val_ssim", "mode": "max"},
            "gradient": {"clip_enabled": True, "clip_value": 1.0},
        },
        "logging": {"log_interval": 100, "log_degradation_stats": True},
        "system": {"gpu_ids": [0], "seed": 42},
    }  # fmt: skip
    (tmp_path / "train_config.json").write_text(json.dumps(raw))
    config = load_config(tmp_path / "train_config.json").config
    assert config.logging.log_interval == 100
    assert config.training.checkpoint_every_steps == 1000
    assert config.data.batch_size == 4


def test_the_command_tells_of_every_file_and_never_fails(tmp_path):
    folder = tmp_path / "options"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "good.yml").write_text((FOLDER / "basicsr_esrgan_x4.yml").read_text())
    (folder / "bad.toml").write_bytes(b"\xff\xfe")
    (folder / "list.yml").write_text("[1, 2]")
    (folder / "notes.txt").write_text("not read")
    (folder / "double.yml").write_text((FOLDER / "basicsr_realesrgan_x2.yml").read_text())
    run = run_command("scripts/check_option_files.py", folder, cwd=tmp_path)
    assert run.returncode == 4
    lines = run.stdout.splitlines()
    assert "✓ deep/good.yml: ESRGAN x4; batch 16 per device; patch 32x32; adam 0.0001; " in run.stdout
    assert "0.01 l1 + 1 vgg19[34]; EMA 0.999; fp32" in run.stdout
    assert "✗ bad.toml: not UTF-8" in run.stdout
    # It enlarges by 4 what it was given as a quarter of the pixels.
    assert "✓ double.yml: ESRGAN x2; batch 12 per device; patch 128x128; " in run.stdout
    assert lines[-1] == "4 files: 2 loaded, 2 not loaded (50.0% understood)"
    assert "Traceback" not in run.stdout + run.stderr
    assert run_command("scripts/check_option_files.py", tmp_path / "no", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ("Adafactor", "adafactor", None),
        ("Muon", "muon", None),
        ("Adam8bit", "adam_8bit", None),
        ("adamw_8bit", "adamw_8bit", None),
        ("SGD", "sgd", None),
        # Two moments, as AdamW; moments, differences, z and the last gradient: 5 - 2 numbers of four bytes.
        ("NAdam", "adamw", "2 numbers a parameter, as is that of NAdam"),
        ("adan_sf", "adamw", "adan_sf keeps 5: 12 bytes a parameter more than is predicted"),
        ("SOAP", "adamw", "SOAP's own state is not in the prediction"),
    ],
)
def test_optimizers_go_by_each_frameworks_name(tmp_path, given, kind, said):
    text = (FOLDER / "basicsr_rrdbnet_psnr_x4.yml").read_text()
    assert text.count("type: Adam\n") == 1
    yaml = tmp_path / "o.yml"
    yaml.write_text(text.replace("type: Adam\n", f"type: {given}\n"))
    kair = tmp_path / "o.json"
    text = (FOLDER / "kair_ffdnet.json").read_text()
    assert text.count('"G_optimizer_type": "adam"') == 1
    kair.write_text(text.replace('"G_optimizer_type": "adam"', f'"G_optimizer_type": "{given}"'))
    for file, key in ((yaml, "train.optim_g.type"), (kair, "train.G_optimizer_type")):
        loaded = load_config(file)
        assert loaded.config.training.optimizer.type == kind
        lines = [message for message in loaded.messages if message.startswith(f"{key} ")]
        assert len(lines) == (said is not None)
        assert said is None or lines[0].endswith(said)
