"""Every way a config can be wrong: the message names the file, the key and a way out, and nothing else."""

import json

import pytest

from swinmr_profiling.configs import ConfigError, config_from_dict, load_config

NET_TYPES = ", ".join(
    f'"{name}"'
    for name in (
        [
            "swinir",
            "swinmr",
            "unet_denoiser",
            "dit_denoiser",
            "diffusers",
            "restoration",
            "spandrel",
            "transformers",
            "timm",
            "custom",
        ]
    )
)


def swinir(**keys):
    return {"model": {"net_type": "swinir", **keys}}


def problems_of(raw: dict) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_dict(raw)
    for noise in ("type=", "pydantic", "http", "Input should", "Extra inputs", "swinir.", "Value error"):
        assert noise not in str(caught.value)
    return caught.value.problems


def test_the_file_is_named_on_every_line(tmp_path):
    file = tmp_path / "bad.json"
    file.write_text('{"model": {"net_type": "swinir", "embed_dims": 60}, "date": {}}')
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert isinstance(caught.value, ValueError)
    assert caught.value.file == str(file)
    assert str(caught.value).splitlines() == [
        f"{file}: model.embed_dims: unknown key; did you mean embed_dim?",
        f"{file}: date: unknown key; did you mean data?",
    ]


def test_unknown_keys_become_messages_when_allowed(tmp_path):
    file = tmp_path / "foreign.json"
    file.write_text('{"model": {"net_type": "swinir", "embed_dims": 60}, "wandb": 1}')
    loaded = load_config(file, allow_unknown=True)
    assert loaded.config.model.embed_dim == 180  # the misspelt key is dropped, not guessed
    assert loaded.messages == (
        "model.embed_dims: unknown key, ignored; did you mean embed_dim?",
        "wandb: unknown key, ignored; known here: experiment_name, paths, data, model, training, evaluation, "
        "logging, system",
    )


def test_a_config_full_of_unknown_keys_is_cut_short():
    problems = problems_of({**swinir(), **{f"zzz{i}": i for i in range(1000)}})
    assert len(problems) == 51
    assert problems[-1] == "top level: 950 more unknown keys"


def test_all_problems_come_together_and_each_once():
    problems = problems_of(
        {
            "model": {
                "net_type": "swinir",
                "depth": [6] * 4,
                "num_heads": [6] * 4,
                "embed_dim": 128,
                "ape": 1,
            },
            "data": {"batch_size": "many", "patch_size": 300},
            "training": {"optimizer": {"lr": 0}, "gradient": 3},
            "system": {"mixed_precision": "fp8"},
        }
    )
    assert sorted(problems) == [
        'data.batch_size: expected whole number, 1 to 10^9, or "auto", got "many"',
        "data.patch_size: patch_size 300 x 300 is larger than the image (256 x 256, model.img_size): "
        "at most that, or use_patches false",
        "model.ape: expected true or false, got 1",
        "model.depth: unknown key; did you mean depths?",
        "model.embed_dim: embed_dim 128 is not divisible by 6 heads: 126 or 132, or num_heads 4 or 8",
        'system.mixed_precision: expected true, false, "bf16", "fp16" or "pure_bf16", got "fp8"',
        "training.gradient: expected an object {...}, got 3",
        "training.optimizer.lr: expected number above 0, got 0",
    ]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "model: missing: an object {...} is required"),
        ({"model": 3}, "model: expected an object {...}, got 3"),
        (
            {"model": {}},
            f"model.net_type: missing: one of {NET_TYPES} is required",
        ),
        ({"model": {"net_type": "timm"}}, "model.name: missing: name of a timm model is required"),
        (swinir(embed_dim="4"), 'model.embed_dim: expected whole number, 1 to 65536, got "4"'),
        (swinir(embed_dim=True), "model.embed_dim: expected whole number, 1 to 65536, got true"),
        (swinir(embed_dim=60.0), "model.embed_dim: expected whole number, 1 to 65536, got 60.0"),
        (swinir(embed_dim=0), "model.embed_dim: expected whole number, 1 to 65536, got 0"),
        (swinir(embed_dim=-6), "model.embed_dim: expected whole number, 1 to 65536, got -6"),
        (swinir(embed_dim=10**30), f"model.embed_dim: expected whole number, 1 to 65536, got {10**30}"),
        (swinir(embed_dim=None), "model.embed_dim: expected whole number, 1 to 65536, got null"),
        (
            swinir(img_size=[256]),
            "model.img_size: expected whole number of pixels, 1 to 65536, or [height, width], got [256]",
        ),
        (
            swinir(depths=[6, "6"]),
            'model.depths: expected list of whole numbers, each 1 to 1024, at least one, got [6, "6"]',
        ),
        (
            swinir(depths=[]),
            "model.depths: expected list of whole numbers, each 1 to 1024, at least one, got []",
        ),
        (swinir(mlp_ratio="2"), 'model.mlp_ratio: expected number above 0, got "2"'),
        (swinir(drop_path_rate=1), "model.drop_path_rate: expected number, 0 to below 1, got 1"),
        (
            swinir(upsampler="pixel"),
            'model.upsampler: expected "pixelshuffle", "pixelshuffledirect", "nearest+conv", or '
            '"", "none" or null '
            'for none, got "pixel"',
        ),
        (
            {**swinir(), "experiment_name": "../up"},
            "experiment_name: expected letters, digits and . _ + - (it names a folder), not "
            "starting with . + or -, "
            'at most 100, got "../up"',
        ),
        ({**swinir(), "paths": {"root": "a\0b"}}, 'paths.root: expected path, got "a\\u0000b"'),
        ({**swinir(), "data": []}, "data: expected an object {...}, got []"),
        ({**swinir(), "system": {"seed": -1}}, "system.seed: expected whole number, 0 to 2^32 - 1, got -1"),
    ],
)
def test_a_wrong_value_says_what_was_expected_and_what_was_given(raw, problem):
    assert problems_of(raw) == [problem]


def test_a_wrong_value_brings_no_complaint_about_its_stand_in():
    # depths falls back to six entries while the rest is checked; four heads are right for what the user meant.
    (problem,) = problems_of(swinir(depths="6666", num_heads=[6] * 4))
    assert problem.startswith("model.depths: expected list")


def test_a_whole_number_is_fine_where_a_number_is():
    assert config_from_dict(swinir(mlp_ratio=2, img_range=1)).model.mlp_ratio == 2.0


@pytest.mark.parametrize(
    ("said", "meant"),
    [("AdamW", '; did you mean "adamw"?'), ("Adma", '; did you mean "adam"?'), ("lion", "")],
)
def test_a_word_of_another_case_or_with_a_slip(said, meant):
    problems = problems_of(swinir() | {"training": {"optimizer": {"type": said}}})
    known = '"adam", "adamw", "sgd", "adafactor", "muon", "adam_8bit" or "adamw_8bit"'
    expected = f'training.optimizer.type: expected {known}, got "{said}"{meant}'
    assert problems == [expected]


def test_an_unknown_network_is_refused_with_the_nearest():
    problems = problems_of({"model": {"net_type": "swin_ir", "depths": 3}})
    assert problems == [f'model.net_type: expected one of {NET_TYPES}, got "swin_ir"; did you mean swinir?']


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        (
            {"source": "phantom", "train_dir": "x"},
            "data.train_dir",
            'drop train_dir, or set source to "auto"',
        ),
        ({"source": "npy"}, "data.train_dir", "needs a train_dir or a test_dir"),
        ({"degradation": {"mask": "file"}}, "data.degradation.mask_file", "give its path, or another mask"),
        (
            {"degradation": {"mask_file": "m.mat"}},
            "data.degradation.mask_file",
            "change mask, or drop mask_file",
        ),
        (
            {"degradation": {"sampled_fraction": 0.25, "acceleration": 4}},
            "data.degradation.acceleration",
            "give one, leave the other out",
        ),
        (
            {"degradation": {"acceleration": 20}},  # 1 / 20 is 0.05, under the default centre of 0.08
            "data.degradation.center_fraction",
            "0.08 alone is more than the sampled share 0.05: at most 0.05",
        ),
    ],
)
def test_data_keys_that_contradict_each_other(data, path, said):
    (problem,) = problems_of({**swinir(), "data": data})
    assert problem.startswith(f"{path}: ")
    assert said in problem


def test_the_sampled_share_follows_from_what_is_given():
    def share(**degradation):
        return config_from_dict(
            {**swinir(), "data": {"degradation": degradation}}
        ).data.degradation.nominal_fraction

    assert share() == 0.3
    assert share(sampled_fraction=0.5) == 0.5
    assert share(acceleration=4) == 0.25
    assert share(mask="radial", acceleration=20) == 0.05  # no fully sampled lines there


@pytest.mark.parametrize(
    ("training", "path", "said"),
    [
        ({"scheduler": {"milestones": [5, 5]}}, "training.scheduler.milestones", "sort them, each once"),
        (
            {"loss": {"components": {"perceptual": {"layers": [2]}}}},
            "training.loss.components.perceptual.layer_weights",
            "5 entries, but layers has 1: one per layer",
        ),
        (
            {
                "loss": {
                    "components": {name: {"weight": 0} for name in ("spatial", "frequency", "perceptual")}
                }
            },
            "training.loss.components.spatial.weight",
            "give one a weight above 0",
        ),
    ],
)
def test_training_keys_that_contradict_each_other(training, path, said):
    (problem,) = problems_of({**swinir(), "training": training})
    assert problem.startswith(f"{path}: ")
    assert said in problem


@pytest.mark.parametrize(
    ("training", "limit"),
    [({}, 120_000), ({"epochs": 3}, None), ({"total_steps": 7}, 7), ({"total_steps": 7, "epochs": 3}, 7)],
)
def test_a_run_without_an_end_gets_one(training, limit):
    assert config_from_dict({**swinir(), "training": training}).training.step_limit == limit


def test_timm_downloads_nothing():
    raw = {"model": {"net_type": "timm", "name": "resnet18", "kwargs": {"pretrained": True}}}
    assert problems_of(raw) == [
        "model.kwargs.pretrained: pretrained would load weights, and nothing is downloaded here: leave it out"
    ]
    raw["model"]["kwargs"]["pretrained"] = False
    config_from_dict(raw)


@pytest.mark.parametrize(
    "target", ["net", "my.net", "my.net:", ":Net", "my net:Net", "os; rm:x", "../net:Net"]
)
def test_a_custom_target_is_module_colon_class(target):
    raw = {"model": {"net_type": "custom", "target": target, "input_shapes": [[1, 8, 8]]}}
    assert problems_of(raw) == [
        f'model.target: expected "package.module:Class" or "path/to/file.py:Class", got {json.dumps(target)}'
    ]


def test_custom_inputs_need_one_entry_each():
    custom = {
        "net_type": "custom",
        "target": "a:B",
        "input_shapes": [[1, 8, 8]],
        "input_dtypes": ["float", "bool"],
    }
    assert problems_of({"model": custom}) == [
        "model.input_dtypes: 2 entries, but input_shapes has 1: one per input in each"
    ]


def test_an_integer_dtype_is_named_in_full():
    custom = {"net_type": "custom", "target": "a:B", "input_shapes": [[8]], "input_dtypes": ["int"]}
    (problem,) = problems_of({"model": custom})
    assert problem == (
        'model.input_dtypes: expected list of "float", "int64" or "bool", one per input, or null, got ["int"]'
    )
