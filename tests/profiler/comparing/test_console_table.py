"""A comparison on a terminal of any width: names are shortened, figures never."""

import random
import re

import pytest

from swinmr_profiling.profiler.comparing.console_table import console_lines
from swinmr_profiling.profiler.reports.views import words
from tests.made_profiles import SAMPLES_1, architecture, predicted_training, ran, recommended, with_training
from tests.made_profiles import profile as made_profile
from tests.profiler.comparing.test_comparison import compared
from tests.scripts.test_compare_profiles import slower
from tests.training_profiles import measured

WIDTHS = (40, 60, 80, 120)
MIB = 2**20


def any_profile(rng, largest):
    """A profile of figures of any size up to `largest`, and of names of any length."""

    def figure(lowest=1):
        return int(10 ** rng.uniform(0, largest)) + lowest

    scale = 10 ** rng.uniform(-4, largest - 4)
    batches = sorted({1, 10 ** rng.randint(1, 6), rng.randint(2, 9)})
    content = made_profile(
        {batch: ran(batch, [sample * scale for sample in SAMPLES_1]) for batch in batches},
        architecture=architecture(4 * figure(), figure()),
        config_file="configs/" + "long/" * rng.randint(0, 20) + "own.json",
    )
    content = with_training(content)
    for block in content["batch_profiling"].values():
        block["memory"]["peak_bytes"] = figure() * MIB
        source = rng.choice(["predicted", "measured", "extrapolated"])
        made = measured(100) if source == "measured" else predicted_training(1, 100)
        block["training"] = made | {"peak_bytes": figure() * MIB, "source": source}
    name = "card " * rng.randint(1, 12)
    content["recommendation"]["training"] = [recommended(name.strip(), 24, figure(), 100)]
    return content


def figures_of(content):
    """The texts of a profile's figures, derived from its JSON: all that the table is to show."""
    one = content["architecture"]
    yield from (words.count(one["total_parameters"]), words.giga(one["macs"]), words.giga(one["flops"]))
    for size, block in content["batch_profiling"].items():
        yield words.milliseconds(block["timing"]["median_ms"])
        yield words.per_second(block["timing"]["images_per_second"])
        yield words.mebibytes(block["memory"]["peak_bytes"])
        yield words.mebibytes(block["training"]["peak_bytes"])
        yield f"batch {size}"
    for entry in content["recommendation"]["training"]:
        yield from (words.count(entry["batch_size"]), words.count(entry["largest_batch"]))


def is_whole(figure, text):
    """Whether it stands in the text by itself, not as part of another number."""
    return re.search(rf"(?<![\w.,…]){re.escape(figure)}(?![\w…]|[.,]\d)", text) is not None


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_every_figure_is_whole_at_every_width(width, count, seed):
    rng = random.Random(seed)
    contents = [any_profile(rng, largest=rng.choice([3, 9])) for _ in range(count)]
    comparison = compared(*contents)
    lines = list(console_lines(comparison, width))
    assert max(map(len, lines)) <= width
    # Labels may be wrapped between their words, and so between "batch" and its number.
    text, joined = "\n".join(lines), " ".join(" ".join(lines).split())
    for content in contents:
        for figure in figures_of(content):
            assert is_whole(figure, joined if figure.startswith("batch ") else text), figure
    for row in comparison.rows:
        for cell in row.cells:
            if cell.ratio is not None:
                assert is_whole(words.ratio(cell.ratio), text), cell.ratio
    assert "…" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_what_kind_of_figure_it_is_stands_with_it(width):
    """A prediction that is not called one would be read as measured."""
    contents = [with_training(), with_training(slower(1.5)), with_training()]
    contents[1]["batch_profiling"]["1"]["training"]["peak_bytes"] = round(10_571.8 * MIB)
    text = "\n".join(console_lines(compared(*contents), width))
    assert is_whole("10,571.8 MiB", text)
    # Memory of training of 2 + 1 + 2 sizes, and two batches for each of two cards in each profile.
    assert text.count("(predicted)") == 5 + 3 * 4


@pytest.mark.parametrize("width", WIDTHS)
def test_a_figure_beyond_every_width_is_still_whole(width):
    content = made_profile(architecture=architecture(2**71, 10**23 + 1))
    text = "\n".join(console_lines(compared(content, content), width))
    assert is_whole(f"{10**23 + 1:,}", text)
    # 2^71 is 2.361183241434822606848 x 10^21.
    assert is_whole("2,361,183,241,434.82 G", text)


def test_side_by_side_where_it_fits():
    """80 columns less 26 of labels leave three profiles 18 each, one of them between: 13 digits and 4 commas."""
    lines = list(console_lines(compared(made_profile(), made_profile(), made_profile()), 80))
    assert any(line.split() == ["#1", "#2", "#3"] for line in lines)
    wide = made_profile(architecture=architecture(parameters=1_234_567_890_123))
    lines = list(console_lines(compared(made_profile(), made_profile(), wide), 80))
    assert any(line.split() == ["#1", "#2", "#3"] for line in lines)
    wider = made_profile(architecture=architecture(parameters=12_345_678_901_234))
    lines = list(console_lines(compared(made_profile(), made_profile(), wider), 80))
    assert not any(line.split() == ["#1", "#2", "#3"] for line in lines)
