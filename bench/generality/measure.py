# SPDX-License-Identifier: Apache-2.0
"""Times a case's step beside the mended one: the planted cause is shown to cost what its case says."""

import statistics
import time

import torch
import torch.distributed as dist


PAIRS = 3, 9  # at least, at most
PAIRS_OF_RANKS = 31  # wall time is noisy
SECONDS = 10


def number_of(result):
    if isinstance(result, torch.Tensor):
        return float(result.detach().double().mean())
    return None if result is None else float(result)


def timed(step, clock, wait):
    wait()
    begin = clock()
    step()
    wait()
    return (clock() - begin) * 1e3


def by_turns(steps, clock, wait):
    """Times of each step, run by turns: a busy machine slows all alike."""
    times = [[] for _ in steps]
    began = time.perf_counter()
    # Ranks must agree on the count, so the time ends the turns of a single process alone.
    least, most = PAIRS if clock is time.process_time else (PAIRS_OF_RANKS, PAIRS_OF_RANKS)
    while len(times[0]) < most:
        for step, taken in zip(steps, times):
            taken.append(timed(step, clock, wait))
        if len(times[0]) >= least and time.perf_counter() - began > SECONDS:
            break
    return times


def measured(case, arguments=()):
    """CPU time of one thread, which a busy machine does not change; wall time where ranks wait."""
    ranks = case.scale == "distributed"
    clock, wait = (time.perf_counter, dist.barrier) if ranks else (time.process_time, lambda: None)
    torch.set_num_threads(1)
    steps, first = [], []
    for mended in (False,) if case.clean else (False, True):
        torch.manual_seed(0)
        step = case.build(mended, *arguments)
        torch.manual_seed(1)
        first.append(number_of(step()))
        step()
        steps.append(step)
    times = by_turns(steps, clock, wait)
    medians = [round(statistics.median(taken), 2) for taken in times]
    numbers = {"clock": "wall" if ranks else "CPU, one thread", "pairs": len(times[0])}
    if case.clean:
        return numbers | {"step_ms": medians[0]}
    return numbers | {
        "slow_ms": medians[0],
        "mended_ms": medians[1],
        "ratio": round(medians[0] / medians[1], 2),
        "ratio_of_minima": round(min(times[0]) / min(times[1]), 2),
        "first_results": first,
    }


def objections(case, numbers):
    """Why the numbers do not bear the case out; empty when they do."""
    if case.clean:
        return []
    said = []
    if numbers["ratio"] < 1.25:
        said.append(f"the mended step is only {numbers['ratio']} times as fast")
    slow, mended = numbers["first_results"]
    if case.same_result:
        if slow is None or abs(slow - mended) > 1e-3 * max(1.0, abs(slow)):
            said.append(f"results differ: {slow} and {mended}")
    return said
