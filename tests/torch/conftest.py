"""Every test starts with an empty Dynamo cache and a known seed."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
