"""Networks that option files name, built as spandrel's: as large as the framework's own code makes them.

The numbers of parameters were counted on the frameworks' own code at scale 4 (`parameters` in networks.json), or are
sums by hand.
"""

import ast
import inspect

import pytest

from swinmr_profiling.configs.option_files.networks import known_networks, network_section
from swinmr_profiling.models.libraries.spandrel_network import _classes, made
from swinmr_profiling.models.restoration import build as restoration

ENTRIES = [
    (framework, name, entry)
    for framework, names in known_networks().items()
    for name, entry in names.items()
    if "architecture" in entry
]


def built(framework, name, scale=4, **arguments):
    key = "net_type" if framework == "KAIR" else "type"
    section = network_section(framework, {key: name, **arguments}, scale, None)
    architecture, kwargs = section["architecture"], section["kwargs"]
    if section["net_type"] == "restoration":
        module = restoration.made(architecture, restoration.NETWORKS[architecture], kwargs)
    else:
        module = made(architecture, kwargs).module
    return sum(parameter.numel() for parameter in module.parameters())


def test_every_entry_names_arguments_that_the_class_has():
    classes = _classes()
    for framework, name, entry in ENTRIES:
        ours = entry.get("net_type") == "restoration"
        made_by = (
            restoration.NETWORKS[entry["architecture"]].network_class
            if ours
            else classes[entry["architecture"]][1]
        )
        known = set(inspect.signature(made_by.__init__).parameters)
        names = {*entry.get("kwargs", {}), *entry.get("arguments", {}).values()}
        names |= {
            key
            for choice in entry.get("choices", {}).values()
            for kwargs in choice.values()
            for key in kwargs
        }
        if "scale" in entry:
            names.add(entry["scale"])
        assert names <= known, (framework, name, names - known)


@pytest.mark.sampled(36)
@pytest.mark.parametrize(
    ("framework", "name"), [(framework, name) for framework, name, entry in ENTRIES if "parameters" in entry]
)
def test_a_network_is_as_large_as_its_frameworks_own_code_makes_it(framework, name):
    required = {"num_in_ch": 3, "num_out_ch": 3} if framework == "BasicSR" and name != "BasicVSR" else {}
    assert built(framework, name, **required) == known_networks()[framework][name]["parameters"]


@pytest.mark.slow
def test_rrdbnet_at_scale_2_takes_pixels_as_channels():
    # BasicSR's own code: the first convolution has 12 channels, 3 x 3 x 9 x 64 weights more than x4's.
    x4 = built("BasicSR", "RRDBNet", 4, num_in_ch=3, num_out_ch=3)
    assert built("BasicSR", "RRDBNet", 2, num_in_ch=3, num_out_ch=3) == x4 + 9 * 9 * 64 == 16_703_171


def test_rcan_is_the_sum_of_its_convolutions():
    # Head, 2 groups of 1 block (two convolutions and the attention 8 -> 2 -> 8) with one more each, one behind them,
    # two stages of the upsampler, the last.
    conv = 8 * 8 * 9 + 8
    block = 2 * conv + (8 * 2 + 2) + (2 * 8 + 8)
    by_hand = (3 * 8 * 9 + 8) + 2 * (block + conv) + conv + 2 * (8 * 32 * 9 + 32) + (8 * 3 * 9 + 3)
    options = {
        "num_in_ch": 3,
        "num_out_ch": 3,
        "num_feat": 8,
        "num_group": 2,
        "num_block": 1,
        "squeeze_factor": 4,
    }
    assert built("BasicSR", "RCAN", 4, **options) == by_hand


def test_kairs_denoisers_are_the_sums_of_their_convolutions():
    unused = {
        "gc": 32,
        "ng": 2,
        "reduction": 16,
        "upsample_mode": "convtranspose",
        "downsample_mode": "strideconv",
    }
    # 17 layers with biases; batch norm (64 + 64) behind the 15 in the middle.
    dncnn = (9 * 64 + 64) + 15 * (64 * 64 * 9 + 64 + 128) + (64 * 9 + 1)
    options = {"in_nc": 1, "out_nc": 1, "nc": 64, "nb": 17, "act_mode": "BR", **unused}
    assert built("KAIR", "dncnn", 1, **options) == dncnn
    fdncnn = (2 * 9 * 64 + 64) + 18 * (64 * 64 * 9 + 64) + (64 * 9 + 1)
    options = {"in_nc": 2, "out_nc": 1, "nc": 64, "nb": 20, "act_mode": "R", **unused}
    assert built("KAIR", "fdncnn", 1, **options) == fdncnn
    # DRUNet's own repository says 32,640,960 for colour images.
    options = {
        "in_nc": 4,
        "out_nc": 3,
        "nc": [64, 128, 256, 512],
        "nb": 4,
        "act_mode": "R",
        "bias": False,
        **unused,
    }
    assert built("KAIR", "drunet", 1, **options) == 32_640_960


def test_the_table_is_plain_data():
    for _, _, entry in ENTRIES:
        assert ast.literal_eval(repr(entry)) == entry
