# SPDX-License-Identifier: Apache-2.0
"""Round 11: work that one larger op does at once, and work that nobody reads."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-parallel-pools",
    round=11,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Spatial pyramid pooling takes maxima of 5 x 5, 9 x 9 and 13 x 13 pixels side by side from the same input.",
    symptom="Three aten::max_pool2d_with_indices on one input lead, and the one of 13 x 13 takes longest.",
    answer="Pyramid pools 5 x 5, 9 x 9 and 13 x 13 from the same input; a 5 x 5 pool of the 5 x 5 pool is the 9 x 9 "
    "one, so three 5 x 5 pools in series give the same (SPPF).",
    names=("max_pool2d", "MaxPool2d", "Pyramid", "SPP", "max pool", "13 x 13", "pooling"),
    actions=("in series", "SPPF", "chain", "one after the other", "5 x 5 pools", "pool of the pool", "stack of small",
             "smaller window", "smaller kernel", "separable", "separate", "rows and then", "1 x 13", "reuse the"),
)
def vision_parallel_pools(mended):
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = (5, 5, 5) if mended else (5, 9, 13)
            self.pools = nn.ModuleList([nn.MaxPool2d(size, 1, size // 2) for size in sizes])
            self.leave = nn.Conv2d(256, 96, 1)

        def forward(self, x):
            outputs, pooled = [x], x
            for pool in self.pools:
                pooled = pool(pooled if mended else x)
                outputs.append(pooled)
            return F.silu(self.leave(torch.cat(outputs, 1)))

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 32, 3, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.SiLU(),
                nn.Conv2d(64, 64, 3, 2, 1), nn.SiLU(),
            )
            self.pyramid, self.head = Pyramid(), nn.Conv2d(96, 25, 1)

        def forward(self, images):
            return self.head(self.pyramid(self.trunk(images)))

    model, images = Detector().eval(), torch.randn(3, 3, 224, 224)

    @torch.inference_mode()
    def detect():
        return model(images).sigmoid()

    return detect


@case(
    id="language-head-modules",
    round=11,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, steps=2),
    cause="Each of 16 attention heads is a module with its own three projections of 8 columns, called in a loop.",
    symptom="Hundreds of aten::linear and of short attention ops a step, below Head; none is long.",
    answer="Head projects its own 8 columns, 48 small products a block and 16 attentions; one Linear for all queries, "
    "keys and values and one scaled_dot_product_attention with a dimension of heads do the same.",
    names=("Head", "heads", "each head"),
    actions=("one Linear", "single Linear", "one linear", "one projection", "fused qkv", "qkv", "all heads",
             "dimension of heads", "batch the heads", "heads together", "MultiheadAttention", "stack", "one product",
             "batched"),
)
def language_head_modules(mended):
    width, heads, words = 128, 16, 500

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, width // heads, bias=False) for _ in range(3))

        def forward(self, x):
            return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), is_causal=True)

    class Separate(nn.Module):
        def __init__(self, heads):
            super().__init__()
            self.heads = nn.ModuleList(heads)

        def forward(self, x):
            return torch.cat([head(x) for head in self.heads], 2)

    class Together(nn.Module):
        def __init__(self, heads):
            super().__init__()
            parts = [[head.query.weight for head in heads], [head.key.weight for head in heads],
                     [head.value.weight for head in heads]]
            self.weight = nn.Parameter(torch.cat([torch.cat(part) for part in parts]).detach().clone())

        def forward(self, x):
            q, k, v = F.linear(x, self.weight).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            single = [Head() for _ in range(heads)]
            self.attention = Together(single) if mended else Separate(single)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.out = nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

        def forward(self, x):
            x = x + self.out(self.attention(self.first(x)))
            return x + self.mlp(self.second(x))

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(64, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])
            self.head = nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.blocks(self.table(ids) + self.place))

    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(words, (4, 65))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-ctc-by-hand",
    round=11,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="The CTC loss is written by hand: its recursion goes over 120 frames in Python, and autograd follows it.",
    symptom="logsumexp, cat, where and stack run 120 times a step on small tensors, and again in backward.",
    answer="ctc_by_hand goes over the frames in Python with small ops; F.ctc_loss (nn.CTCLoss) is one op, forward and "
    "backward.",
    names=("ctc_by_hand", "logsumexp", "CTC", "recursion", "each frame", "120"),
    actions=("ctc_loss", "CTCLoss"),
)
def audio_ctc_by_hand(mended):
    frames, batch, letters, spoken = 120, 8, 40, 20

    def ctc_by_hand(scores, targets):
        low = scores.new_full((batch, 1), -1e30)
        states = F.pad(torch.stack([torch.zeros_like(targets), targets], 2).flatten(1), (0, 1))
        skips = F.pad((states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2]), (2, 0))
        seen = scores.gather(2, states.expand(frames, -1, -1))
        alpha = torch.cat([seen[0, :, :2], low.expand(-1, states.shape[1] - 2)], 1)
        for frame in range(1, frames):
            stepped = torch.cat([low, alpha[:, :-1]], 1)
            skipped = torch.where(skips, torch.cat([low, low, alpha[:, :-2]], 1), low)
            alpha = torch.logsumexp(torch.stack([alpha, stepped, skipped]), 0) + seen[frame]
        return -torch.logsumexp(alpha[:, -2:], 1).mean()

    class Recogniser(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv1d(64, 96, 5, 2, 2), nn.ReLU(), nn.Conv1d(96, 96, 5, 1, 2), nn.ReLU(),
                nn.Conv1d(96, 96, 5, 1, 2), nn.ReLU(), nn.Conv1d(96, letters, 1),
            )

        def forward(self, mel):
            return self.convs(mel).permute(2, 0, 1).log_softmax(2)

    model = Recogniser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    mel, targets = torch.randn(batch, 64, 2 * frames), torch.randint(1, letters, (batch, spoken))
    long, short = torch.full((batch,), frames), torch.full((batch,), spoken)

    def train_step():
        optimizer.zero_grad()
        scores = model(mel)
        if mended:
            loss = F.ctc_loss(scores, targets, long, short, reduction="none").mean()
        else:
            loss = ctc_by_hand(scores, targets)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-scan-edges",
    round=11,
    domain="graphs",
    mode="training",
    same_result=False,
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="Neighbours of each of 128 seed nodes are found by comparing all 200,000 edges with the node.",
    symptom="128 times aten::eq and aten::index (nonzero) over [200000] a step, in sample_neighbours.",
    answer="sample_neighbours compares all 200,000 edges with each seed; sort the edges by target once (CSR), so that "
    "a node's neighbours are a slice, and draw for all seeds at once.",
    names=("sample_neighbours", "aten::eq", "nonzero", "200000", "200,000", "all edges"),
    actions=("CSR", "csr", "sort the edges", "sorted by", "once", "slice", "pointer", "searchsorted", "adjacency list",
             "NeighborLoader", "neighbor sampler", "precompute", "index of"),
)
def graph_scan_edges(mended):
    nodes, edges, seeds, fanout, width = 6000, 200_000, 128, 12, 64
    source = torch.cat([torch.randint(nodes, (edges - nodes,)), torch.arange(nodes)])
    target = torch.cat([torch.randint(nodes, (edges - nodes,)), torch.arange(nodes)])
    by_target = source[target.argsort()]
    degrees = torch.bincount(target, minlength=nodes)
    begins = degrees.cumsum(0) - degrees

    def sample_neighbours(chosen):
        if mended:
            drawn = (torch.rand(seeds, fanout) * degrees[chosen, None]).long()
            return by_target[begins[chosen, None] + drawn]
        rows = []
        for node in chosen:
            neighbours = source[target == node]
            rows.append(neighbours[torch.randint(len(neighbours), (fanout,))])
        return torch.stack(rows)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.others = nn.Linear(width, 256), nn.Linear(width, 256)
            self.leave = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

        def forward(self, own, others):
            return self.leave(F.relu(self.own(own) + self.others(others.mean(1))))

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    features, labels = torch.randn(nodes, width), torch.randint(10, (nodes,))

    def train_step():
        chosen = torch.randint(nodes, (seeds,))
        neighbours = sample_neighbours(chosen)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features[chosen], features[neighbours]), labels[chosen])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-sparse-small-table",
    round=11,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    cause="A table of 400 rows has sparse=True: gradients of 65,536 looked up rows are coalesced in each step.",
    symptom="aten::coalesce with its sort of 65,536 indices, and SparseAdam's ops, lead; the table has 400 rows.",
    answer="The table has 400 rows and each step reads all of them, so its sparse gradient of 65,536 entries is only "
    "sorted and coalesced; drop sparse=True and use a dense optimizer.",
    names=("coalesce", "sparse", "SparseAdam", "_coalesce"),
    actions=("sparse=False", "dense gradient", "dense optimizer", "drop sparse", "without sparse", "remove sparse",
             "dense", "not sparse"),
)
def recommender_sparse_small_table(mended):
    rows, width = 400, 48

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(rows, width, sparse=not mended)
            self.layers = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1))

        def forward(self, history):
            return self.layers(self.table(history).mean(1))[:, 0]

    model = Ranker()
    optimizers = [torch.optim.Adam(model.layers.parameters(), lr=1e-3, fused=True)]
    if mended:
        optimizers.append(torch.optim.Adam(model.table.parameters(), lr=1e-3, fused=True))
    else:
        optimizers.append(torch.optim.SparseAdam(model.table.parameters(), lr=1e-3))
    history, clicked = torch.randint(rows, (2048, 32)), torch.rand(2048).round()

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(history), clicked)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step


@case(
    id="generative-no-detach",
    round=11,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A GAN's discriminator learns from made images that are not detached, so its backward goes through the "
    "generator, whose gradients are then zeroed.",
    symptom="The generator's transposed convolutions run backward twice a step after one forward.",
    answer="The discriminator's loss runs backward through the generator, and zero_grad throws its gradients away; "
    "detach() the made images for the discriminator.",
    names=("generator", "Generator", "conv_transpose", "backward twice", "retain_graph", "discriminator",
           "ConvTranspose", "two backward", "backward runs"),
    actions=("detach", "no_grad", "requires_grad_(False)", "requires_grad=False"),
)
def generative_no_detach(mended):
    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(64, 96 * 64)
            self.layers = nn.Sequential(
                nn.ReLU(), nn.ConvTranspose2d(96, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 48, 4, 2, 1),
                nn.ReLU(), nn.Conv2d(48, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1), nn.Tanh(),
            )

        def forward(self, z):
            return self.layers(self.enter(z).view(-1, 96, 8, 8))

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 24, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(24, 48, 4, 2, 1), nn.LeakyReLU(0.2),
                nn.Flatten(), nn.Linear(48 * 64, 1), nn.Flatten(0),
            )

        def forward(self, images):
            return self.layers(images)

    generator, discriminator = Generator(), Discriminator()
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    real = torch.rand(12, 3, 32, 32) * 2 - 1

    def train_step():
        made = generator(torch.randn(12, 64))
        of_discriminator.zero_grad()
        judged = discriminator(made.detach() if mended else made)
        loss = F.softplus(-discriminator(real)).mean() + F.softplus(judged).mean()
        loss.backward(retain_graph=not mended)
        of_discriminator.step()
        of_generator.zero_grad()
        F.softplus(-discriminator(made)).mean().backward()
        of_generator.step()
        return loss

    return train_step


@case(
    id="timeseries-quantile-calls",
    round=11,
    domain="time series",
    mode="inference",
    profile=Profile(record_shapes=True, with_stack=True, schedule=False),
    cause="19 quantiles of a forecast's 200 paths come from 19 calls of quantile, and each sorts all paths again.",
    symptom="aten::quantile of the same [200, 64, 24] numbers runs 19 times a step and takes most of it.",
    answer="quantile is called once for each of 19 levels and sorts the same paths each time; one call with a tensor "
    "of levels sorts once.",
    names=("quantile", "aten::sort", "sort"),
    actions=("one call", "single call", "all levels", "tensor of levels", "all quantiles", "sort once", "sorts once",
             "vector of", "once", "at once"),
)
def timeseries_quantile_calls(mended):
    paths, batch, horizon = 200, 64, 24
    levels = torch.arange(1, 20) / 20

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.recur = nn.GRU(6, 96, batch_first=True)
            self.mean, self.spread = nn.Linear(96, horizon), nn.Linear(96, horizon)

        def forward(self, series):
            state = self.recur(series)[1][0]
            steps = torch.randn(paths, batch, horizon) * F.softplus(self.spread(state)) + self.mean(state)
            return steps.cumsum(2)

    def bands(drawn):
        if mended:
            return torch.quantile(drawn, levels, 0)
        return torch.stack([torch.quantile(drawn, level, 0) for level in levels])

    model, series = Forecaster().eval(), torch.randn(batch, 96, 6)

    @torch.inference_mode()
    def forecast():
        return bands(model(series))

    return forecast


@case(
    id="tabular-bins-by-comparison",
    round=11,
    domain="tabular",
    mode="inference",
    profile=Profile(record_shapes=True, with_modules=True, with_stack=True),
    cause="Numbers are put into 64 bins by comparing each with all 63 edges of its column and counting.",
    symptom="aten::ge and aten::sum over [4096, 30, 63] take most of the step; the network after them is small.",
    answer="Binning compares each number with all 63 edges and sums; torch.searchsorted (bucketize) finds the bin by a "
    "binary search without the large tensor.",
    names=("aten::ge", "Bins", "aten::sum", "comparison", "63]"),
    actions=("searchsorted", "bucketize", "binary search"),
)
def tabular_bins_by_comparison(mended):
    columns, bins, width, batch = 30, 64, 8, 4096

    class Bins(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("edges", torch.randn(columns, bins - 1).sort(1).values)

        def forward(self, numbers):
            if mended:
                return torch.searchsorted(self.edges, numbers.T.contiguous(), right=True).T
            return (numbers[:, :, None] >= self.edges).sum(2)

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.bins, self.table = Bins(), nn.Embedding(columns * bins, width)
            self.register_buffer("begins", torch.arange(columns) * bins)
            self.layers = nn.Sequential(nn.Linear(columns * width, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, numbers):
            return self.layers(self.table(self.bins(numbers) + self.begins).flatten(1))

    model, numbers = Scorer().eval(), torch.randn(batch, columns)

    @torch.inference_mode()
    def score():
        return model(numbers).sigmoid()

    return score


@case(
    id="distributed-global-scores",
    round=11,
    domain="vision",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each of two ranks computes the contrastive loss of all pairs of both ranks, and not of its own rows alone.",
    symptom="Both ranks run the same products and log_softmax over [1536, 1536] after the all_gather.",
    answer="Both ranks compute all scores [1536, 1536] and their cross entropy twice; let each compute only its own "
    "768 rows against all gathered features (a local loss).",
    names=("1536, 1536", "contrastive", "scores", "log_softmax", "cross_entropy", "all_gather", "same work"),
    actions=("own rows", "local loss", "local_loss", "its own 768", "own part", "own features", "own half",
             "only its rows", "each rank computes", "rows of its own", "split the rows", "shard"),
)
def distributed_global_scores(mended, rank, world):
    from torch.distributed.nn.functional import all_gather
    from torch.nn.parallel import DistributedDataParallel

    batch, width = 768, 128

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.see = nn.Sequential(nn.Linear(256, 192), nn.GELU(), nn.Linear(192, width))
            self.read = nn.Sequential(nn.Linear(192, 192), nn.GELU(), nn.Linear(192, width))

        def forward(self, images, texts):
            return F.normalize(self.see(images), dim=1), F.normalize(self.read(texts), dim=1)

    def contrastive(seen, read):
        all_seen, all_read = torch.cat(all_gather(seen)), torch.cat(all_gather(read))
        if mended:
            same = torch.arange(batch) + rank * batch
        else:
            seen, read, same = all_seen, all_read, torch.arange(world * batch)
        return (F.cross_entropy(20 * seen @ all_read.T, same) + F.cross_entropy(20 * read @ all_seen.T, same)) / 2

    model = DistributedDataParallel(Pairs())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, texts = torch.randn(batch, 256), torch.randn(batch, 192)

    def train_step():
        optimizer.zero_grad()
        loss = contrastive(*model(images, texts))
        loss.backward()
        optimizer.step()
        logged = loss.detach() / world
        dist.all_reduce(logged)
        return logged

    return train_step


@case(
    id="distributed-whole-field",
    round=11,
    domain="science",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A wave solver cuts its grid in two halves, and each time step gathers the whole grid to read one row of it.",
    symptom="gloo:all_gather of [512, 1024] and aten::cat in each of six time steps take longer than the stencil.",
    answer="all_gather moves both halves of the grid in each time step though the stencil reads one row of the other "
    "rank; exchange the boundary rows (halos) with isend and irecv.",
    names=("all_gather", "allgather", "whole field", "whole grid", "gather"),
    actions=("halo", "boundary row", "edge row", "border row", "isend", "irecv", "one row", "only the row", "send the",
             "ghost", "batch_isend_irecv", "neighbour's row"),
)
def distributed_whole_field(mended, rank, world):
    rows, columns = 512, 1024
    other = 1 - rank
    down, across = torch.arange(world * rows)[:, None] / 40, torch.arange(columns) / 60
    start = (down.sin() * across.cos())[rank * rows : (rank + 1) * rows].contiguous()

    def with_halo(field):
        if mended:
            row, edge = torch.empty(1, columns), field[-1:] if rank == 0 else field[:1]
            sent, received = dist.isend(edge.contiguous(), other), dist.irecv(row, other)
            received.wait()
            sent.wait()
        else:
            halves = [torch.empty_like(field) for _ in range(world)]
            dist.all_gather(halves, field)
            whole = torch.cat(halves)
            row = whole[rows : rows + 1] if rank == 0 else whole[rows - 1 : rows]
        zero = torch.zeros(1, columns)
        return torch.cat([zero, field, row] if rank == 0 else [row, field, zero])

    def laplacian(field):
        tall = with_halo(field)
        wide = F.pad(field, (1, 1))
        return tall[2:] + tall[:-2] + wide[:, 2:] + wide[:, :-2] - 4 * field

    @torch.inference_mode()
    def advance():
        before = now = start
        for _ in range(6):
            before, now = now, torch.add(2 * now - before, laplacian(now), alpha=0.2)
        return now.square().mean()

    return advance
