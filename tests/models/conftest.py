"""What tests of networks share."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """Small operators on many threads wait for each other where other processes run beside the tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
