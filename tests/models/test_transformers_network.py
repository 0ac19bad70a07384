"""transformers classes by settings or by a folder's config.json, with random weights."""

import json

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model

BERT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50,
    "max_position_embeddings": 24,
}  # fmt: skip
# Embeddings of 50 words, 24 places, 2 kinds and their norm; a block of four 16 x 16, two of 16 x 32 and two norms;
# the pooler's 16 x 16.
BERT_PARAMETERS = (
    (50 + 24 + 2) * 16 + 32 + 4 * (16 * 16 + 16) + (2 * 16 * 32 + 32 + 16) + 2 * 32 + 16 * 16 + 16
)


def build(**model):
    return build_model(config_from_dict({"model": {"net_type": "transformers", **model}}))


def parameters(built):
    return sum(p.numel() for p in built.module.parameters())


def test_a_class_and_its_settings():
    built = build(**{"class": "BertModel"}, config=BERT)
    assert parameters(built) == BERT_PARAMETERS
    (tokens,) = built.example_inputs(2)
    assert tokens.shape == (2, 24)  # no longer than its places
    assert built.module(tokens).shape == (2, 24, 16)


def test_a_folder_with_a_config(tmp_path):
    content = {**BERT, "model_type": "bert", "architectures": ["BertModel"], "transformers_version": "4.1"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    assert parameters(build(folder=str(tmp_path))) == BERT_PARAMETERS
    assert parameters(build(folder=str(tmp_path), config={"num_hidden_layers": 2})) > BERT_PARAMETERS


def test_images_and_described_inputs():
    vit = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    built = build(**{"class": "ViTModel"}, config={**vit, "image_size": 32, "patch_size": 16})
    (image,) = built.example_inputs(2)
    assert image.shape == (2, 3, 32, 32)
    assert built.module(image).shape == (2, 1 + 4, 16)
    built = build(**{"class": "BertModel"}, config=BERT, inputs={"input_ids": [5], "attention_mask": [5]})
    assert built.module(*built.example_inputs(3)).shape == (3, 5, 16)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"class": "BertModle"}, "has no class 'BertModle': did you mean"),
        ({"class": "BertConfig"}, "BertConfig of transformers is not a network"),
        (
            {"class": "BertModel", "config": {**BERT, "num_attention_heads": 3}},
            "model.config: BertModel refuses it",
        ),
        (
            {"class": "BertModel", "config": BERT, "inputs": {"input_idz": [5]}},
            "takes no 'input_idz': did you mean input_ids?",
        ),
        ({"folder": "/nowhere"}, "model.folder: /nowhere/config.json: No such file"),
    ],
)
def test_what_cannot_be_built_is_told_in_one_line(model, told):
    with pytest.raises(ModelError) as caught:
        build(**model)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_code_in_a_folder_is_not_run(tmp_path):
    content = {"architectures": ["X"], "auto_map": {"AutoModel": "modeling.X"}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="names code of its own"):
        build(folder=str(tmp_path))
