"""summary, count and recommend of live modules: the commands' figures, and nothing changed."""

import copy
import json

import pytest
import torch
from torch import nn

import swinmr_profiling
from swinmr_profiling import count, predict_training, recommend, summary
from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.measuring_worker import Worker
from tests.conftest import REPOSITORY


def state_of(module):
    return copy.deepcopy(
        {
            "values": {name: value.clone() for name, value in module.state_dict().items()},
            "modes": [child.training for child in module.modules()],
            "gradients": [p.grad for p in module.parameters()],
            "hooks": [
                len(child._forward_hooks) + len(child._forward_pre_hooks) for child in module.modules()
            ],
        }
    )


def equal(first, second):
    return (
        all(torch.equal(value, second["values"][name]) for name, value in first["values"].items())
        and first["modes"] == second["modes"]
        and first["gradients"] == second["gradients"]
        and first["hooks"] == second["hooks"]
    )


TIMM = ("resnet10t", "vit_tiny_patch16_224", "convnext_atto", "swin_tiny_patch4_window7_224", "mixer_s32_224",
        "efficientnet_b0", "regnetx_002", "mobilenetv3_small_050", "xcit_nano_12_p16_224", "ghostnet_050")  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", TIMM)
def test_a_timm_network_has_the_command_s_figures(name, profile_model, tmp_path):
    timm = pytest.importorskip("timm")
    module = timm.create_model(name)
    before, state = state_of(module), torch.get_rng_state()
    size = 224 if "224" in name else 64
    found = summary(module, torch.zeros(1, 3, size, size))
    assert equal(before, state_of(module))
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training
    model = {"net_type": "timm", "name": name, "img_size": size}
    (tmp_path / "timm.json").write_text(json.dumps({"model": model}))
    run = profile_model("--config", "timm.json", "--batch-sizes", "1", "--num-runs", "1", "--warmup", "0")
    assert run.returncode == 0, run.stderr
    profile = json.loads((tmp_path / "results/profile_results.json").read_text())["architecture"]
    for key in (
        "total_parameters",
        "buffer_elements",
        "parameters_by_module",
        "macs",
        "by_kind",
        "by_operator",
    ):
        assert found.to_json()[key] == profile[key], key


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {**SMALL, "vocab_size": 50, "max_position_embeddings": 24}
TRANSFORMERS = {
    "BertModel": WORDS,
    "RobertaModel": {**WORDS, "max_position_embeddings": 40, "pad_token_id": 1},
    "ElectraModel": {**WORDS, "embedding_size": 16},
    "ViTModel": {**SMALL, "image_size": 32, "patch_size": 16},
    "DeiTModel": {**SMALL, "image_size": 32, "patch_size": 16},
    "GPT2Model": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 24},
}
UNET = {
    "sample_size": 16, "in_channels": 3, "out_channels": 3, "block_out_channels": [8, 16], "norm_num_groups": 4,
    "layers_per_block": 1,
}  # fmt: skip
PLAIN = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2}
DIFFUSERS = {
    "plain": ("UNet2DModel", {**UNET, **PLAIN}),
    "attention": (
        "UNet2DModel",
        {
            **UNET,
            "down_block_types": ["AttnDownBlock2D"] * 2,
            "up_block_types": ["AttnUpBlock2D"] * 2,
            "attention_head_dim": 4,
        },
    ),
    "resnet": (
        "UNet2DModel",
        {
            **UNET,
            "down_block_types": ["ResnetDownsampleBlock2D"] * 2,
            "up_block_types": ["ResnetUpsampleBlock2D"] * 2,
        },
    ),
    "skips": ("UNet2DModel", {**UNET, **PLAIN, "add_attention": False}),
}


def figures_of_the_command(model):
    """What the process of `profile_model.py` that counts answers for a `model` section."""
    worker = Worker(lambda *_, **__: None)
    raw = config_from_dict({"model": model}).model_dump(mode="json")
    worker.do_build(raw, trust_config=False, seed=0)
    return worker.do_count().to_json(), worker.built.example_inputs(1)


def assert_same_figures_and_state(module, inputs, keywords, command):
    before, random_state = state_of(module), torch.get_rng_state()
    found = summary(module, inputs, keywords).to_json()
    assert equal(before, state_of(module))
    assert torch.equal(torch.get_rng_state(), random_state)
    for key in ("total_parameters", "buffer_elements", "macs", "by_kind", "by_operator"):
        assert found[key] == command[key], key


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformers_network_has_the_command_s_figures(name):
    transformers = pytest.importorskip("transformers")
    settings = TRANSFORMERS[name]
    command, (first, *_) = figures_of_the_command(
        {"net_type": "transformers", "class": name, "config": settings}
    )
    kind = getattr(transformers, name)
    module = kind(kind.config_class(**settings)).train()
    assert_same_figures_and_state(module, (first,), {}, command)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DIFFUSERS)
def test_a_diffusers_network_has_the_command_s_figures(name):
    diffusers = pytest.importorskip("diffusers")
    kind, settings = DIFFUSERS[name]
    command, (image, step, *_) = figures_of_the_command(
        {"net_type": "diffusers", "class": kind, "config": settings}
    )
    module = getattr(diffusers, kind)(**settings)
    assert_same_figures_and_state(module, (image, step), {}, command)


def test_networks_of_other_libraries_are_left_as_they_are():
    transformers = pytest.importorskip("transformers")
    diffusers = pytest.importorskip("diffusers")
    bert = transformers.BertModel(
        transformers.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100
        )
    )
    unet = diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    tokens = torch.ones(1, 8, dtype=torch.int64)
    cases = [(bert, (), {"input_ids": tokens}), (unet, (torch.zeros(1, 3, 16, 16), torch.tensor(1)), {})]
    for module, inputs, keywords in cases:
        before = state_of(module)
        assert summary(module, inputs, keywords).macs > 0
        assert equal(before, state_of(module))
    # Per token: 2 layers of 4 x 32 x 32 and 2 x 32 x 64, and 2 x 8 x 32 of scores and values; the pooler 32 x 32 once.
    assert count(bert, (), {"input_ids": tokens}).macs == 8 * 2 * (4 * 1024 + 4096 + 2 * 8 * 32) + 1024


def test_the_answer_for_a_card():
    # 1,000 x 1,000 weights with AdamW: weight, gradient and two moments; the card of 24 GB takes the largest batch.
    memory = predict_training(nn.Linear(1000, 1000), torch.zeros(2, 1000))
    entry = recommend(memory, "RTX 3090")
    assert entry.budget.name == "GeForce RTX 3090"
    assert entry.batch_size == 65535
    assert not entry.verified
    assert recommend(memory, "RTX 3090", target_batch=8, devices=2).batch_size == 4
    with pytest.raises(ValueError, match="RTX 30999"):
        recommend(memory, "RTX 30999")


def test_a_notebook_shows_the_blocks_and_escapes_what_is_in_them():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("<b>", nn.Linear(8, 4))

        def forward(self, x):
            return self._modules["<b>"](x)

    html = summary(Odd(), torch.zeros(1, 8))._repr_html_()
    assert '<th style="text-align:left">total_parameters</th><td style="text-align:left">36</td>' in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html


@pytest.mark.slow
def test_what_the_package_offers(capsys):
    for name in swinmr_profiling.__all__:
        assert getattr(swinmr_profiling, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'profile'"):
        swinmr_profiling.profile  # noqa: B018
    predict_training(nn.Linear(8, 4), torch.zeros(2, 8))
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_the_notebook_of_the_docs_runs(capsys):
    notebook = json.loads((REPOSITORY / "docs/from_python.ipynb").read_text())
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["answer"].batch_size > 8
    assert "fits 21.16 GiB" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_the_docs_runs():
    text = (REPOSITORY / "docs/python.md").read_text()
    names = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    model, image = names["model"], names["image"]
    # 2 x (3 x 64 x 9) weights, 64 + 3 biases; each weight at 128 x 128 places.
    assert names["summary"](model, image).total_parameters == 2 * 1728 + 67 == 3523
    assert names["count"](model, image).macs == 2 * 1728 * 128 * 128 == 56623104
