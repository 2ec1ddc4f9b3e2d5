# SPDX-License-Identifier: Apache-2.0
"""Processes of one group on gloo, one thread each. They stay from test to test, so that torch is loaded once by each."""

import atexit
import multiprocessing
import os
import socket
import traceback

_SECONDS = 120  # of one call: an import of transformers beside other work takes a quarter of it
_groups = {}


def _serve(rank, world, port, pipe):
    import datetime

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    while True:
        try:
            body, args = pipe.recv()
        except EOFError:
            return
        torch.manual_seed(0)
        try:
            pipe.send((True, body(rank, *args)))
        except BaseException:  # the test that asked says which rank failed, and how
            pipe.send((False, traceback.format_exc()))


class _Group:
    def __init__(self, world):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(world):
            here, there = context.Pipe()
            self.processes.append(context.Process(target=_serve, args=(rank, world, port, there), daemon=True))
            self.processes[-1].start()
            there.close()  # so that the end of a process is seen
            self.pipes.append(here)

    def close(self):
        for process in self.processes:
            process.kill()
            process.join()


def group(world):
    if world not in _groups:
        _groups[world] = _Group(world)
        atexit.register(stop, world)
    return _groups[world]


def run(body, *args, world=2):
    """body(rank, *args) on every rank, and what each gives. A failure on one ends the group: a later test has a fresh one."""
    pipes, results, errors = group(world).pipes, [], []
    for pipe in pipes:
        pipe.send((body, args))
    for rank, pipe in enumerate(pipes):
        try:
            done, result = pipe.recv() if pipe.poll(_SECONDS) else (False, f"no answer within {_SECONDS} s")
        except EOFError:
            done, result = False, "it ended"
        results.append(result)
        if not done:
            errors.append(f"rank {rank}: {result}")
            break  # the others may wait for this one
    if errors:
        stop(world)
        raise AssertionError("\n".join(errors))
    return results


def stop(world):
    ended = _groups.pop(world, None)
    if ended is not None:
        ended.close()
