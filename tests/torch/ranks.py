# SPDX-License-Identifier: Apache-2.0
"""Processes of one group on gloo, one thread each. They stay from test to test, so that torch is loaded once by each.

With hosts=2 each half of the ranks has a network, and a /dev/shm, of its own: namespaces of Linux, joined by a virtual cable. They end
with their processes. What cannot make them says Unavailable.
"""

import atexit
import ctypes
import multiprocessing
import os
import socket
import subprocess
import traceback

_SECONDS = 120  # of one call: an import of transformers beside other work takes a quarter of it
_groups = {}


class Unavailable(Exception):
    """This machine, or this user, makes no namespaces."""


CABLE = "epilogue0"


class _Hosts:
    """One process each holds a network and a /dev/shm."""

    def __init__(self, count):
        self.holders = []
        try:
            for _ in range(count):
                start = ["unshare", "--net", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /dev/shm && echo ready && exec cat"]
                pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
                holder = subprocess.Popen(start, **pipes, text=True)
                self.holders.append(holder)
                if holder.stdout.readline() != "ready\n":
                    raise Unavailable(f"unshare: {holder.stderr.read().strip()}")
            first, second = (h.pid for h in self.holders)
            self._run("ip", "link", "add", CABLE, "netns", str(first), "type", "veth", "peer", "name", CABLE, "netns", str(second))
            for i, holder in enumerate(self.holders):
                inside = ["nsenter", "--target", str(holder.pid), "--net", "ip"]
                self._run(*inside, "address", "add", f"{self.address(i)}/24", "dev", CABLE)
                for name in ("lo", CABLE):
                    self._run(*inside, "link", "set", name, "up")
        except OSError as error:
            self.close()
            raise Unavailable(str(error)) from error
        except Unavailable:
            self.close()
            raise

    @staticmethod
    def address(host):
        return f"10.213.57.{host + 1}"

    @staticmethod
    def _run(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.communicate()


def _enter(holder):
    """This process, which has one thread yet, is of that host from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.getcwd()
    files = [os.open(f"/proc/{holder}/ns/{kind}", os.O_RDONLY) for kind in ("net", "mnt")]
    for file in files:
        if libc.setns(file, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(file)
    os.chdir(folder)


def _serve(rank, world, address, port, holder, seconds, pipe):
    import datetime

    if holder is not None:
        _enter(holder)
        os.environ["GLOO_SOCKET_IFNAME"] = CABLE
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR=address, MASTER_PORT=str(port))
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=seconds))
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


class Group:
    """seconds: the group's timeout."""

    def __init__(self, world, hosts=1, seconds=60):
        self.hosts = _Hosts(hosts) if hosts > 1 else None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(world):
            here, there = context.Pipe()
            holder = self.hosts.holders[rank * hosts // world].pid if self.hosts else None
            address = _Hosts.address(0) if self.hosts else "127.0.0.1"
            args = (rank, world, address, port, holder, seconds, there)
            self.processes.append(context.Process(target=_serve, args=args, daemon=True))
            self.processes[-1].start()
            there.close()  # so that the end of a process is seen
            self.pipes.append(here)

    def close(self):
        for process in self.processes:
            process.kill()
            process.join()
        if self.hosts:
            self.hosts.close()


def group(world, hosts=1):
    key = world, hosts
    if key not in _groups:
        _groups[key] = Group(world, hosts)
        atexit.register(stop, *key)
    return _groups[key]


def run(body, *args, world=2, hosts=1):
    """body(rank, *args) on every rank, and what each gives. A failure on one ends the group: a later test has a fresh one."""
    pipes, results, errors = group(world, hosts).pipes, [], []
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
        stop(world, hosts)
        raise AssertionError("\n".join(errors))
    return results


def stop(world, hosts=1):
    ended = _groups.pop((world, hosts), None)
    if ended is not None:
        ended.close()
