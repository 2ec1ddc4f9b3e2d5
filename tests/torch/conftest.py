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


@pytest.fixture(params=sorted(models.BUILD))
def name(request):
    return request.param


@pytest.fixture
def llama():
    return models.build("llama")
