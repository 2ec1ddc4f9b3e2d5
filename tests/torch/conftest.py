# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, built from configs: no weights are downloaded."""

import os

os.environ.setdefault("EPILOGUE_CACHE_DIR", "off")

import models
import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def one_thread():
    """Small ops spend their time waiting for each other's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=sorted(models.BUILD))
def name(request):
    return request.param


@pytest.fixture
def llama():
    return models.build("llama")
