# SPDX-License-Identifier: Apache-2.0
"""Interleaved times, ratios with intervals, differences of results."""

import random
import statistics
import time
import typing

import torch


def interleaved(calls: "dict[str, typing.Callable[[], typing.Any]]", seconds: float, rounds: int) -> "dict[str, list[float]]":
    """Milliseconds per call by setting. Each round runs all, in a new order, often enough for the
    clock; a round's time is its mean."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, min(1000, int(seconds / max(time.perf_counter() - start, 1e-7))))
    times: "dict[str, list[float]]" = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            start = time.perf_counter()
            for _ in range(repeats[name]):
                calls[name]()
            times[name].append((time.perf_counter() - start) / repeats[name] * 1e3)
    return times


def ratio(best: "list[float]", fused: "list[float]") -> "tuple[float, float, float]":
    """Of medians, with the 95 % interval of resampled rounds."""
    draw = random.Random(0)
    pairs = list(zip(best, fused))
    seen = []
    for _ in range(500):
        sample = [draw.choice(pairs) for _ in pairs]
        seen.append(statistics.median(a for a, _ in sample) / statistics.median(b for _, b in sample))
    seen.sort()
    return statistics.median(best) / statistics.median(fused), seen[12], seen[487]


def quartiles(best: "list[float]", fused: "list[float]") -> "tuple[float, float, float]":
    """Of the rounds' ratios; the one between is their median."""
    low, middle, high = statistics.quantiles([b / f for b, f in zip(best, fused)], n=4)
    return low, middle, high


def interval(times: "list[float]") -> "tuple[float, float, float]":
    """The median, with the 95 % interval of resampled rounds."""
    draw = random.Random(0)
    seen = sorted(statistics.median(draw.choices(times, k=len(times))) for _ in range(500))
    return statistics.median(times), seen[12], seen[487]


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.double() - want.double()).norm() / want.double().norm()).item()
