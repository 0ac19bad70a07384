"""Networks of option files: the frameworks' own defaults, and values that have no counterpart."""

import json

import pytest
import torch

from swinmr_profiling.configs import ConfigError, load_config
from swinmr_profiling.configs.option_files.networks import known_networks, network_section
from swinmr_profiling.models.restoration.build import NETWORKS
from swinmr_profiling.models.spandrel_network import REQUIRED, _classes
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
    """Of the network that a `model` section of an option file builds, without making its weights."""
    with torch.device("meta"):
        if section["net_type"] == "swinir":
            kwargs = {key: value for key, value in section.items() if key != "net_type"}
            module = SwinIR(**{"upsampler": "", **kwargs})
        elif section["net_type"] == "restoration":
            module = NETWORKS[section["architecture"]].network_class(**section["kwargs"])
        else:
            name = section["architecture"]
            module = _classes()[name][1](**{**REQUIRED.get(name, {}), **section["kwargs"]})
    return sum(parameter.numel() for parameter in module.parameters())


COUNTED = [
    (framework, name)
    for framework, networks in known_networks().items()
    for name, entry in networks.items()
    if "parameters" in entry
]


@pytest.mark.slow
def test_networks_have_the_parameters_of_the_frameworks_own_code():
    """Counted on the networks that traiNNer-redux, neosr, BasicSR and KAIR build at scale 4 by their own defaults."""
    differing = {}
    for framework, name in COUNTED:
        key = "net_type" if framework == "KAIR" else "type"
        entry = known_networks()[framework][name]
        section, _ = network_section(framework, {key: name}, 4, None)
        if (found := parameters_of(section)) != entry["parameters"]:
            differing[framework, name] = (found, entry["parameters"])
    assert differing == {}
    assert len(COUNTED) >= 80


@pytest.mark.parametrize(
    ("framework", "name"),
    [("BasicSR", "EDSR"), ("traiNNer-redux", "nafnet32"), ("traiNNer-redux", "span"), ("neosr", "compact")],
)
def test_some_networks_have_the_parameters_of_the_frameworks_own_code(framework, name):
    section, _ = network_section(framework, {"type": name}, 4, None)
    assert parameters_of(section) == known_networks()[framework][name]["parameters"]


def test_the_table_of_networks_is_sorted_json():
    """One network a line, so that a change of one is one line of a diff."""
    for networks in known_networks().values():
        assert list(networks) == sorted(networks)
        for entry in networks.values():
            assert json.loads(json.dumps(entry)) == entry
