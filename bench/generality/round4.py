# SPDX-License-Identifier: Apache-2.0
"""Round 4: habits that suit another machine, another size or the day of debugging."""

import logging
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from case import Profile, case

log = logging.getLogger(__name__)


@case(
    id="vision-class-loop",
    round=4,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True),
    cause="A Dice loss loops over 40 classes; the backward of each probs[:, c] fills all classes with zeros.",
    symptom="The loss takes more than the network; select_backward, add and zero fills are on top in backward.",
    answer="dice_loss takes a class at a time: SelectBackward0 makes 40 zero tensors of full size and adds them; use "
    "one_hot and one sum for all classes.",
    names=("dice_loss", "select_backward", "SelectBackward0", "loop over classes", "class loop"),
    actions=("one_hot", "one-hot", "scatter", "all classes at once", "unbind", "vectorise", "vectorize",
             "without a loop"),
)
def vision_class_loop(mended):
    classes = 40
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, classes, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    images, target = torch.randn(4, 3, 56, 56), torch.randint(classes, (4, 56, 56))

    def dice_loss(logits):
        probs = logits.softmax(1)
        if mended:
            truth = F.one_hot(target, classes).movedim(3, 1).float()
            overlap = (probs * truth).sum((0, 2, 3))
            total = probs.sum((0, 2, 3)) + truth.sum((0, 2, 3))
            return (1 - 2 * overlap / (total + 1)).mean()
        loss = 0.0
        for c in range(classes):
            share, truth = probs[:, c], (target == c).float()
            overlap = (share * truth).sum()
            loss = loss + 1 - 2 * overlap / (share.sum() + truth.sum() + 1)
        return loss / classes

    def train_step():
        optimizer.zero_grad()
        loss = dice_loss(model(images))
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-checkpoint-all",
    round=4,
    domain="language",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True, steps=3),
    cause="Every block is checkpointed, and attention and MLP within it once more, though memory is ample: the forward "
    "runs three times.",
    symptom="Backward takes four times the forward; forward ops stand within it.",
    answer="checkpoint recomputes each block and, nested, each half of it; drop checkpointing, or keep one level where "
    "memory needs it.",
    names=("checkpoint", "recomput"),
    actions=("remove checkpoint", "without checkpoint", "drop checkpoint", "selective", "only where",
             "one level", "if memory", "checkpoint less", "disable checkpoint"),
)
def language_checkpoint_all(mended):
    width, heads = 128, 4

    def kept(function, x):
        return function(x) if mended else checkpoint(function, x, use_reentrant=False)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()
            self.mlp = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            x = x + kept(self.attention, x)
            return x + kept(self.mlp, x)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(500, width)
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.head = nn.Linear(width, 500)

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = kept(block, x)
            return self.head(x)

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(500, (4, 129))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-all-experts",
    round=4,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A mixture of eight experts runs each expert on all tokens and multiplies seven of eight results by 0.",
    symptom="The experts' products take the step; their cost is that of eight dense MLPs.",
    answer="Experts computes all tokens in every expert although the gate picks one; send each expert its own tokens.",
    names=("Expert", "expert", "mixture"),
    actions=("route", "dispatch", "its own tokens", "only the tokens", "selected tokens", "grouped"),
)
def language_all_experts(mended):
    width, count = 160, 8

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(width, count)
            self.experts = nn.ModuleList([
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(count)
            ])

        def forward(self, x):
            rows = x.flatten(0, 1)
            weight, chosen = self.gate(rows).softmax(1).max(1)
            out = torch.zeros_like(rows)
            for at, expert in enumerate(self.experts):
                if mended:
                    mine = (chosen == at).nonzero().squeeze(1)
                    out.index_add_(0, mine, expert(rows[mine]) * weight[mine, None])
                else:
                    out += expert(rows) * (weight * (chosen == at))[:, None]
            return out.view_as(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out, self.experts = nn.Linear(width, 3 * width), nn.Linear(width, width), Experts()

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.experts(self.second(x))

    model = nn.Sequential(Block(), Block()).eval()
    hidden = torch.randn(4, 96, width)

    @torch.inference_mode()
    def encode():
        return model(hidden).square()

    return encode


@case(
    id="audio-kernel-each-time",
    round=4,
    domain="audio",
    mode="inference",
    profile=Profile(),
    cause="A streaming resampler computes its sinc kernel in double precision for each chunk of sound.",
    symptom="sin, cos, mul and div of the same 160 x 797 tensor recur with each chunk and take most of the step.",
    answer="The windowed sinc kernel (sin, cos, where, pow in float64) is the same for each chunk; compute it once and "
    "keep it in a buffer.",
    names=("aten::sin", "aten::cos", "sinc", "resample", "float64"),
    actions=("compute once", "cache", "buffer", "precompute", "reuse", "hoist", "outside the loop",
             "transforms.Resample"),
)
def audio_kernel_each_time(mended):
    old, new, zeros = 441, 160, 64
    half = math.ceil(zeros * old / (new * 0.99))
    tagger = nn.Sequential(nn.Conv1d(1, 24, 32, stride=8), nn.ReLU(), nn.Conv1d(24, 24, 8, stride=4), nn.ReLU()).eval()
    chunks = torch.randn(8, 2, 4410)

    def sinc_kernel():
        at = torch.arange(-half, half + old, dtype=torch.float64)[None, None] / old
        time = torch.arange(0, -new, -1, dtype=torch.float64)[:, None, None] / new + at
        time = (time * new * 0.99).clamp(-zeros, zeros)
        window = torch.cos(time * math.pi / zeros / 2) ** 2
        angle = time * math.pi
        kernel = torch.where(angle == 0, 1.0, angle.sin() / angle)
        return (kernel * window * (new * 0.99 / old)).float()

    ready = sinc_kernel()

    def resample(wave):
        kernel = ready if mended else sinc_kernel()
        wave = F.pad(wave, (half, half + old))
        return F.conv1d(wave[:, None], kernel, stride=old).transpose(1, 2).flatten(1)

    @torch.inference_mode()
    def stream():
        return torch.stack([tagger(resample(chunk)[:, None]).mean() for chunk in chunks])

    return stream


@case(
    id="graph-matrix-again",
    round=4,
    domain="graphs",
    mode="inference",
    profile=Profile(record_shapes=True, schedule=False),
    cause="The sparse adjacency matrix is built from the edge list, coalesced and made CSR in each layer's call.",
    symptom="Sorting edges takes several times the sparse products.",
    answer="coalesce (a sort) and to_sparse_csr run in each layer on edges that do not change; build the matrix once.",
    names=("coalesce", "to_sparse_csr", "sparse_coo_tensor", "_coalesce", "to_sparse"),
    actions=("build once", "cache", "outside", "reuse", "precompute", "hoist", "build the matrix before"),
)
def graph_matrix_again(mended):
    nodes, edges = 3000, 50_000
    ends, weights = torch.randint(nodes, (2, edges)), torch.rand(edges) / 20

    def adjacency():
        matrix = torch.sparse_coo_tensor(ends, weights, (nodes, nodes), check_invariants=False)
        return matrix.coalesce().to_sparse_csr()

    ready = adjacency()

    class GraphConv(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(24, 24)

        def forward(self, h):
            return ((ready if mended else adjacency()) @ self.project(h)).relu()

    model = nn.Sequential(*[GraphConv() for _ in range(4)], nn.Linear(24, 6)).eval()
    features = torch.randn(nodes, 24)

    @torch.no_grad()
    def classify():
        return model(features)

    return classify


@case(
    id="recommender-from-lists",
    round=4,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True),
    cause="Each step makes its batch with torch.tensor from Python lists of lists, 130,000 numbers.",
    symptom="Between steps the host is busy and no op of the model runs.",
    answer="make_batch spends the time in torch.tensor on nested lists; keep the data as tensors (or NumPy arrays) and "
    "index them.",
    names=("make_batch", "torch.tensor", "Python lists"),
    actions=("from_numpy", "as_tensor", "keep the data as tensors", "tensors once", "NumPy", "DataLoader",
             "num_workers", "workers", "outside the step", "precompute", "prefetch"),
)
def recommender_from_lists(mended):
    count, features, history = 2048, 80, 50
    dense_rows, clicked = torch.rand(count, features), torch.randint(20_000, (count, history))
    records = [{"dense": dense, "clicked": items} for dense, items in zip(dense_rows.tolist(), clicked.tolist())]
    items = nn.EmbeddingBag(20_000, 16, mode="mean", sparse=True)
    tower = nn.Sequential(nn.Linear(features + 16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizers = [torch.optim.SGD(items.parameters(), lr=0.1), torch.optim.Adam(tower.parameters(), fused=True)]
    labels = torch.rand(1024).round()

    def make_batch():
        picked = torch.randint(count, (1024,))
        if mended:
            return dense_rows[picked], clicked[picked]
        rows = [records[i] for i in picked.tolist()]
        return torch.tensor([row["dense"] for row in rows]), torch.tensor([row["clicked"] for row in rows])

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        dense, history_ids = make_batch()
        scores = tower(torch.cat([dense, items(history_ids)], 1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, labels)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step


@case(
    id="science-neighbours-again",
    round=4,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, profile_memory=True),
    cause="Molecular dynamics finds its neighbour list from all pairs of 1,000 atoms in each of eight time steps.",
    symptom="cdist and nonzero take far more than the forces of the few pairs that are near.",
    answer="find_pairs (cdist over all pairs, nonzero) runs each time step; keep a list with a margin (Verlet skin) "
    "and renew it every few steps, or use cells.",
    names=("cdist", "nonzero", "find_pairs", "neighbour", "neighbor"),
    actions=("Verlet", "skin", "every few steps", "less often", "reuse", "cell list", "cache", "outside the loop"),
)
def science_neighbours_again(mended):
    atoms, cutoff, skin = 1000, 1.5, 0.3
    side = torch.arange(10.0) * 1.2
    start = torch.cartesian_prod(side, side, side) + 0.05 * torch.randn(atoms, 3)

    def find_pairs(x, reach):
        near = torch.cdist(x, x) < reach
        return near.triu(1).nonzero().T

    def forces(x, pairs):
        first, second = pairs
        apart = x[first] - x[second]
        square = apart.square().sum(1, keepdim=True)
        sixth = square.reciprocal() ** 3
        push = 24 * (2 * sixth * sixth - sixth) / square * (square < cutoff**2)
        push = (push * apart).clamp(-50, 50)
        return torch.zeros_like(x).index_add_(0, first, push).index_add_(0, second, push, alpha=-1)

    @torch.no_grad()
    def simulate():
        x, v = start.clone(), torch.zeros_like(start)
        pairs = find_pairs(x, cutoff + skin) if mended else None
        for _ in range(8):
            v = v + 0.001 * forces(x, pairs if mended else find_pairs(x, cutoff))
            x = x + 0.001 * v
        return v.square()

    return simulate


@case(
    id="generative-bfloat16",
    round=4,
    domain="generative",
    mode="inference",
    profile=Profile(record_shapes=True),
    same_result=False,  # eight bits of mantissa
    cause="A sampler runs in bfloat16 on a CPU that has no instructions for it.",
    symptom="Products and convolutions are slower than their sizes explain; conversions stand among the ops.",
    answer="The inputs are BFloat16 and the CPU (AVX2) emulates it; run in float32.",
    names=("bfloat16", "BFloat16", "bf16"),
    actions=("float32", "fp32", "full precision", "single precision", "without autocast", "another dtype"),
)
def generative_bfloat16(mended):
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(4, 64, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
            self.norm = nn.GroupNorm(8, 64)
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x):
            h = F.silu(self.norm(self.enter(x)))
            rows = h.flatten(2).transpose(1, 2)
            rows = rows + self.down(F.gelu(self.up(rows)))
            return self.leave(rows.transpose(1, 2).unflatten(2, x.shape[2:]))

    model = Denoiser().eval()
    dtype = torch.float32 if mended else torch.bfloat16
    model.to(dtype)

    @torch.inference_mode()
    def sample():
        x = torch.randn(2, 4, 24, 24, dtype=dtype)
        for _ in range(4):
            x = x - 0.1 * model(x)
        return x.float()

    return sample


@case(
    id="timeseries-log-text",
    round=4,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True),
    cause="log.debug gets an f-string with a tensor in each block: the text is made although the level drops it.",
    symptom="Hundreds of small ops (abs, ceil, item, select) that belong to no layer, between the layers.",
    answer="The f-strings of log.debug format tensors (_tensor_str) in each block; remove them or use "
    "lazy %s arguments.",
    names=("_tensor_str", "__repr__", "__format__", "log.debug", "formatting", "printing"),
    actions=("remove the log", "lazy", "isEnabledFor", "%s", "less often", "every N", "do not format",
             "without printing", "print less"),
)
def timeseries_log_text(mended):
    class Block(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.conv = nn.Conv1d(32, 32, 3, padding=dilation, dilation=dilation)

        def forward(self, x):
            out = x + F.relu(self.conv(x))
            if mended:
                log.debug("block gives %s", out[0])
            else:
                log.debug(f"block gives {out[0]}")
            return out

    model = nn.Sequential(nn.Conv1d(8, 32, 1), *[Block(2**i) for i in range(6)], nn.Conv1d(32, 8, 1))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    series, target = torch.randn(8, 8, 128), torch.randn(8, 8, 128)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-uneven",
    round=4,
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(record_shapes=True),
    same_result=False,  # a rank's own documents differ
    cause="Documents are sorted by length and cut in halves: rank 1 gets the long ones and rank 0 waits.",
    symptom="Rank 0 waits in all_gather for more than half of each step.",
    answer="Rank 1 has several times the tokens of rank 0 and is late at each all_gather; deal documents by turns or "
    "by tokens.",
    names=("rank 1 is", "rank 1's", "imbalance", "uneven", "straggler", "all_gather", "allgather"),
    actions=("balance", "by length", "evenly", "even out", "interleave", "same amount", "redistribute", "by tokens",
             "round robin", "equal work"),
)
def distributed_uneven(mended, rank, world):
    lengths = [8, 9, 11, 12, 18, 20, 140, 144, 150, 154, 170, 176]
    documents = [torch.randint(2000, (4, length)) for length in lengths]
    half = len(documents) // world
    mine = documents[rank * half : (rank + 1) * half]
    if mended:  # dealt as cards are: there and back
        mine = [document for at, document in enumerate(documents) if (at % 4 in (0, 3)) == (rank == 0)]

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(2000, 128)
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, tokens):
            return self.layers(self.embed(tokens)).mean(1)

    model = Reader().eval()

    @torch.inference_mode()
    def read():
        vectors = torch.cat([model(tokens) for tokens in mine])
        every = [torch.empty_like(vectors) for _ in range(world)]
        dist.all_gather(every, vectors)
        return torch.cat(every)

    return read
