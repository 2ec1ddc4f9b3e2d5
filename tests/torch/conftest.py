# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, built from configs: no weights are downloaded."""

import os

os.environ.setdefault("EPILOGUE_CACHE_DIR", "off")

import models
import pytest
import torch
from epilogue.torch import training


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


_products_of = training.products_of  # tests put others in its place


def _pinned(monkeypatch, slow):
    monkeypatch.setattr(training, "mkl_is_slow", lambda: slow)
    _products_of.cache_clear()
    yield
    _products_of.cache_clear()


@pytest.fixture(autouse=True)
def fast_mkl(monkeypatch):
    """Whose f32 products a call takes is the same on all CPUs; tests that ask for slow_mkl have the other."""
    yield from _pinned(monkeypatch, False)


@pytest.fixture
def slow_mkl(fast_mkl, monkeypatch):
    yield from _pinned(monkeypatch, True)


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
