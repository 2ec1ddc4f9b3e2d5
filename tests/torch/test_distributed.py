# SPDX-License-Identifier: Apache-2.0
"""Two processes on gloo: DDP equals the unfused model; what FSDP2 shards runs as the module's own."""

import copy
import socket

import models
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import epilogue.torch


def _steps(model, batches):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for batch in batches:
        model(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _ddp(rank):
    torch.manual_seed(0)
    plain = models.build("llama")
    fused = epilogue.torch.fuse(copy.deepcopy(plain), training="always")
    batches = torch.randint(2, 96, (3, 2, 1, 7))[:, rank]
    probe = models.ids(5)
    results = []
    for model in (plain, fused):
        _steps(DistributedDataParallel(model), batches)
        with torch.no_grad():
            results.append(model(probe).logits)
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)
    assert epilogue.torch.why(fused).fused_calls == 4 * models.LAYERS
    same = results[1].clone()
    dist.broadcast(same, 0)
    assert torch.equal(same, results[1])


def _fsdp(rank):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain = models.build("llama")
    fused = epilogue.torch.fuse(copy.deepcopy(plain), training="always")
    for model in (plain, fused):
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    batches = torch.randint(2, 96, (3, 2, 1, 7))[:, rank]
    probe = models.ids(5)
    results = []
    for model in (plain, fused):
        for batch in batches:
            _steps(model, [batch])
            with torch.no_grad():
                logits = model(probe).logits
        results.append(logits)
    torch.testing.assert_close(results[1], results[0])
    report = epilogue.torch.why(fused)
    assert report.fused_calls == 0 and "FSDP2" in str(report), str(report)


def _process(rank, port, body):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        body(rank)
    finally:
        dist.destroy_process_group()


def _run(body):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_process, args=(port, body), nprocs=2)


def test_ddp():
    _run(_ddp)


def test_fsdp2():
    _run(_fsdp)
