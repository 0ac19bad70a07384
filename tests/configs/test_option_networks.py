"""Networks of option files: the frameworks' own defaults, and values that have no counterpart."""

import inspect
import json

import pytest
import torch

from swinmr_profiling.configs import ConfigError, load_config
from swinmr_profiling.configs.option_files.networks import known_networks, network_section
from swinmr_profiling.models.libraries.spandrel_network import REQUIRED, _classes
from swinmr_profiling.models.restoration.build import NETWORKS
from swinmr_profiling.models.swin.swinir import SwinIR


def trainner(tmp_path, network, scale=4):
    file = tmp_path / "o.yml"
    file.write_text(f"name: a\nscale: {scale}\nuse_amp: true\nnetwork_g: {network}\ndatasets: {{}}\n")
    return load_config(file).config.model


@pytest.mark.parametrize(("scale", "architecture"), [(2, "UpCunet2x"), (3, "UpCunet3x"), (4, "UpCunet4x")])
def test_each_scale_of_realcugan_is_another_network(tmp_path, scale, architecture):
    model = trainner(tmp_path, "{type: realcugan, pro: true}", scale)
    assert (model.architecture, model.kwargs) == (architecture, {"pro": True})


def test_lists_that_a_framework_fills_in_are_filled_in_here(tmp_path):
    """traiNNer-redux' NAFNet has 2, 2, 4, 8 blocks on the way down; spandrel's class has none of its own."""
    kwargs = trainner(tmp_path, "{type: nafnet32}", 1).kwargs
    assert (kwargs["enc_blk_nums"], kwargs["dec_blk_nums"], kwargs["width"]) == (
        [2, 2, 4, 8],
        [2, 2, 2, 2],
        32,
    )


@pytest.mark.parametrize(
    ("network", "scale", "problem"),
    [
        ("{type: realcugan}", 1, "scale: 1, and the network has 2, 3, 4 alone"),
        (
            "{type: realcugan, fast: true}",
            2,
            "network_g.fast: true makes another network than spandrel's networks",
        ),
        (
            "{type: realplksr, upsampler: conv}",
            4,
            'network_g.upsampler: "conv" is none of dysample, pixelshuffle',
        ),
    ],
)
def test_values_without_a_counterpart_are_refused_in_one_line(tmp_path, network, scale, problem):
    with pytest.raises(ConfigError) as caught:
        trainner(tmp_path, network, scale)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def parameters_of(section):
    """Of the network that a `model` section builds; without making its weights, where its class can be made so."""
    try:
        with torch.device("meta"):
            module = network_of(section)
    except RuntimeError:  # a class that reads numbers out of tensors as it is made
        module = network_of(section)
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture
def stochastic_depths_are_numbers(monkeypatch):
    """Rates of stochastic depth are read out of a tensor, which has none without data."""
    linspace = torch.linspace
    monkeypatch.setattr(
        torch, "linspace", lambda *given, **named: linspace(*given, **{**named, "device": "cpu"})
    )


def network_of(section):
    if section["net_type"] == "swinir":
        return SwinIR(
            **{"upsampler": "", **{key: value for key, value in section.items() if key != "net_type"}}
        )
    name = section["architecture"]
    if section["net_type"] == "restoration":
        return NETWORKS[name].network_class(**section["kwargs"])
    return _classes()[name][1](**{**REQUIRED.get(name, {}), **section["kwargs"]})


COUNTED = [
    (framework, name)
    for framework, networks in known_networks().items()
    for name, entry in networks.items()
    if "parameters" in entry
]


@pytest.mark.slow
def test_networks_have_the_parameters_of_the_frameworks_own_code(stochastic_depths_are_numbers):
    """Counted on the networks that traiNNer-redux, neosr, BasicSR and KAIR build at scale 4 by their own defaults."""
    differing = {}
    for framework, name in COUNTED:
        key = "net_type" if framework == "KAIR" else "type"
        entry = known_networks()[framework][name]
        section = network_section(framework, {key: name}, 4, None)
        if (found := parameters_of(section)) != entry["parameters"]:
            differing[framework, name] = (found, entry["parameters"])
    assert differing == {}
    assert len(COUNTED) >= 80


@pytest.mark.parametrize(
    ("framework", "name"),
    [("BasicSR", "EDSR"), ("traiNNer-redux", "nafnet32"), ("traiNNer-redux", "span"), ("neosr", "compact")],
)
def test_some_networks_have_the_parameters_of_the_frameworks_own_code(framework, name):
    section = network_section(framework, {"type": name}, 4, None)
    assert parameters_of(section) == known_networks()[framework][name]["parameters"]


def test_networks_of_repositories_built_on_basicsr_keep_their_names(tmp_path):
    """HAT's, DAT's and others' own repositories write BasicSR's files with the arguments of their own class."""
    file = tmp_path / "train_HAT_SRx4.yml"
    file.write_text(
        "name: HAT\nscale: 4\ndatasets: {train: {gt_size: 256, batch_size_per_gpu: 4}}\n"
        "network_g: {type: HAT, upscale: 4, in_chans: 3, img_size: 64, window_size: 16, compress_ratio: 3,\n"
        "  squeeze_factor: 30, conv_scale: 0.01, overlap_ratio: 0.5, img_range: 1., depths: [6, 6], embed_dim: 180,\n"
        "  num_heads: [6, 6], mlp_ratio: 2, upsampler: pixelshuffle, resi_connection: 1conv}\n"
        "train: {ema_decay: 0.999, optim_g: {type: Adam, lr: !!float 2e-4}, pixel_opt: {type: L1Loss}}\n"
    )
    config = load_config(file).config
    assert (config.model.architecture, config.model.kwargs["upscale"]) == ("HAT", 4)
    assert config.model.kwargs["overlap_ratio"] == 0.5
    assert (config.data.batch_size, config.training_patch_hw) == (4, (64, 64))


def test_every_argument_of_the_table_is_one_of_its_class():
    unknown = []
    for framework, networks in known_networks().items():
        for name, entry in networks.items():
            if entry.get("net_type") == "swinir":
                continue
            for architecture in (
                [entry["architecture"]] if "architecture" in entry else entry["by_scale"].values()
            ):
                network_class = (
                    NETWORKS[architecture].network_class
                    if entry.get("net_type") == "restoration"
                    else _classes()[architecture][1]
                )
                known = inspect.signature(network_class.__init__).parameters
                given = [*entry.get("arguments", {}).values(), *entry.get("kwargs", {})]
                if "architecture" in entry and "scale" in entry:
                    given.append(entry["scale"])
                unknown += [(framework, name, key) for key in given if key not in known]
    assert unknown == []


def test_the_table_of_networks_is_sorted_json():
    """One network a line, so that a change of one is one line of a diff."""
    for networks in known_networks().values():
        assert list(networks) == sorted(networks)
        for entry in networks.values():
            assert json.loads(json.dumps(entry)) == entry
