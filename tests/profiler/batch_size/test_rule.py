"""The rule of the largest batch, by hand and against its own words over the whole range."""

import random

import pytest

from swinmr_profiling.profiler.batch_size.fit import largest_by_rule, stretch


def by_its_words(fitting, last):
    """Going up from 1, the first batch that fits and of whose next max(16, 1 %) none fits."""
    for batch in range(1, last + 1):
        beyond = range(batch + 1, batch + max(16, (batch + 99) // 100) + 1)
        if batch in fitting and not any(other in fitting for other in beyond):
            return batch
    return None


@pytest.mark.parametrize(
    ("batch", "length"), [(1, 16), (1600, 16), (1601, 17), (1700, 17), (1701, 18), (65535, 656)]
)
def test_a_stretch_is_16_or_1_percent(batch, length):
    assert stretch(batch) == length


@pytest.mark.parametrize(
    ("fitting", "largest"),
    [
        (set(), None),
        ({1}, 1),
        ({5}, 5),  # a first batch that does not fit ends nothing
        ({1, 2, 3, 20}, 3),  # 4 to 19 are 16: 20 is not asked
        ({1, 2, 3, 19}, 19),  # within the next 16 of 3
        ({3, 19, 36}, 19),
        ({3, 19, 35}, 35),
        ({*range(1, 1601), 1616, 1633}, 1633),  # of 1616 the next 17
        ({*range(1, 1601), 1616, 1634}, 1616),
    ],
)
def test_by_hand(fitting, largest):
    assert by_its_words(fitting, 2000) == largest
    assert largest_by_rule(fitting.__contains__, 2000) == largest


def test_nothing_beyond_the_last_possible_is_asked():
    asked = []

    def fits(batch):
        asked.append(batch)
        return True

    assert largest_by_rule(fits, 100) == 100
    assert max(asked) == 100
    assert largest_by_rule(fits, 0) is None
    # One that fits is enough to pass over the fifteen below it.
    assert len(asked) < 12


@pytest.mark.parametrize("seed", range(200))
def test_any_pattern_of_fitting_batches(seed):
    source = random.Random(seed)
    sparse = source.uniform(0.02, 0.5)
    end = source.randrange(1, 4000)
    fitting = {batch for batch in range(1, end) if source.random() < sparse}
    assert largest_by_rule(fitting.__contains__, 4000) == by_its_words(fitting, 4000)
