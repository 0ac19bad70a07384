"""A sample of the accepted configs of `built_configs.py`, which builds as many as it is told to."""

from itertools import islice

import pytest

from tests.properties.built_configs import accepted_configs, build_and_run

SAMPLE = 40


@pytest.mark.slow
def test_accepted_configs_are_networks():
    sample = list(islice(accepted_configs(seed=18), SAMPLE))
    ended = [(config.model.net_type, build_and_run(config)) for _, config in sample]
    # Of the five kinds of network that are drawn.
    assert len({net_type for net_type, _ in ended}) >= 4
    assert [how for _, how in ended].count("ran") > SAMPLE / 2
