# SPDX-License-Identifier: Apache-2.0
"""Shared by the runs of planted_causes.py: how one is declared, and small models."""

CASES = {}
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


class Case:
    def __init__(self, make, expect, says, allows, env, profile, which):
        self.make, self.expect, self.says = make, expect, says
        self.allows, self.env, self.profile, self.which = allows, env, profile, which


def planted(expect, says="", env=None, which="first", **profile):
    """A run whose first finding has the id `expect`, and `says` in its title or evidence."""
    def add(make):
        CASES[make.__name__] = Case(make, expect, says, set(), env or {}, profile, which)
        return make
    return add


def clean(allows=(), env=None, which="first", **profile):
    """A run without a cause; findings that are true of it all the same are allowed."""
    def add(make):
        CASES[make.__name__] = Case(make, None, "", set(allows), env or {}, profile, which)
        return make
    return add


def mlp(width, depth=2, hidden=4):
    import torch.nn as nn
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, hidden * width), nn.GELU(), nn.Linear(hidden * width, width)]
    return nn.Sequential(*layers)


def inference(model, *inputs):
    import torch
    model.eval()

    def step():
        with torch.no_grad():
            model(*inputs)
    return step


def training(model, optimizer, *inputs):
    def step():
        optimizer.zero_grad()
        model(*inputs).float().square().mean().backward()
        optimizer.step()
    return step
