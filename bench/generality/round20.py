# SPDX-License-Identifier: Apache-2.0
"""Round 20: answers that no one reads, facts that are known, and sums at the wrong place."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-match-across-images",
    round=20,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=2),
    cause="The matcher of a set detector computes costs between the queries of each image and the "
    "targets of all images, as DETR does, and reads the blocks of the same image alone.",
    symptom="Forward of Matcher: ops on [2400, 240] take most of the step; aten::split and "
    "aten::select take one block of each image.",
    answer="Matcher flattens the batch and computes costs (cdist, overlap) of 2,400 queries with "
    "the 240 targets of all 16 images, of which one sixteenth is used; compute the costs image by "
    "image, or batched as [16, 150, 15].",
    names=("Matcher", "matcher", "2400, 240", "overlap", "cdist", "[2400", "2,400"),
    actions=("image by image", "per image", "each image", "own image", "same image",
             "[16, 150, 15]", "16, 150", "block", "diagonal", "batch dimension", "batched",
             "without flatten", "not flatten", "keep the batch"),
)
def vision_match_across_images(mended):
    images, queries, targets, kinds, width = 16, 150, 15, 10, 64

    def corners(boxes):
        centre, size = boxes.split(2, -1)
        return torch.cat([centre - size / 2, centre + size / 2], -1)

    def overlap(one, other):
        one, other = corners(one)[..., :, None, :], corners(other)[..., None, :, :]
        area = (one[..., 2:] - one[..., :2]).prod(-1)
        other_area = (other[..., 2:] - other[..., :2]).prod(-1)
        low = torch.maximum(one[..., :2], other[..., :2])
        high = torch.minimum(one[..., 2:], other[..., 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        union = area + other_area - shared
        low = torch.minimum(one[..., :2], other[..., :2])
        high = torch.maximum(one[..., 2:], other[..., 2:])
        hull = (high - low).prod(-1)
        return shared / union - (hull - union) / hull

    class Matcher(nn.Module):
        @torch.no_grad()
        def forward(self, scores, boxes, labels, wanted):
            chances = scores.softmax(-1)
            if mended:
                likely = chances.gather(2, labels[:, None].expand(-1, queries, -1))
                cost = 5 * torch.cdist(boxes, wanted, p=1) - likely - 2 * overlap(boxes, wanted)
                return cost.argmin(1)
            chances, boxes, wanted = (x.flatten(0, 1) for x in (chances, boxes, wanted))
            likely = chances[:, labels.flatten()]
            cost = 5 * torch.cdist(boxes, wanted, p=1) - likely - 2 * overlap(boxes, wanted)
            cost = cost.view(images, queries, -1).split(targets, -1)
            return torch.stack([block[i].argmin(0) for i, block in enumerate(cost)])

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(3, 32, 4, 4), nn.ReLU(), nn.Conv2d(32, width, 4, 4), nn.ReLU(),
            )
            self.queries = nn.Parameter(torch.randn(queries, width))
            self.kind, self.box = nn.Linear(width, kinds), nn.Linear(width, 4)

        def forward(self, pictures):
            seen = self.backbone(pictures).flatten(2).transpose(1, 2)
            asked = self.queries.expand(len(pictures), -1, -1)
            h = asked + F.scaled_dot_product_attention(asked, seen, seen)
            return self.kind(h), self.box(h).sigmoid()

    model, matcher = Detector(), Matcher()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    pictures, labels = torch.rand(images, 3, 64, 64), torch.randint(kinds, (images, targets))
    wanted = torch.rand(images, targets, 4) * 0.5 + 0.2

    def train_step():
        optimizer.zero_grad()
        scores, boxes = model(pictures)
        found = matcher(scores, boxes, labels, wanted)
        scores = scores.gather(1, found[:, :, None].expand(-1, -1, kinds))
        boxes = boxes.gather(1, found[:, :, None].expand(-1, -1, 4))
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten()) + F.l1_loss(boxes, wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-cross-keys-each-token",
    round=20,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=2),
    cause="A translator projects the encoder's output to keys and values of cross attention again "
    "for each token; its own tokens alone are cached.",
    symptom="addmm of [480, 192] by [192, 384] runs in each CrossAttention for each of 14 tokens, "
    "where the decoder's own products have four rows.",
    answer="CrossAttention projects the source sentences to keys and values at each token though "
    "they do not change; project them once before the loop and keep them as a cache.",
    names=("CrossAttention", "cross attention", "cross-attention", "480, 192", "addmm", "source"),
    actions=("once", "cache", "before the loop", "out of the loop", "keep", "store", "precompute",
             "reuse", "hoist", "in advance"),
)
def language_cross_keys_each_token(mended):
    width, heads, depth, words, rows, source, tokens = 192, 4, 2, 800, 4, 120, 14

    def split(x):
        return x.unflatten(2, (heads, -1)).transpose(1, 2)

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x, keys, values, past):
            q, k, v = (split(part) for part in self.qkv(x).chunk(3, 2))
            keys[:, :, past : past + 1], values[:, :, past : past + 1] = k, v
            mixed = F.scaled_dot_product_attention(
                q, keys[:, :, : past + 1], values[:, :, : past + 1]
            )
            return self.out(mixed.transpose(1, 2).flatten(2))

    class CrossAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
            self.out = nn.Linear(width, width)

        def read(self, sentences):
            return [split(part) for part in self.kv(sentences).chunk(2, 2)]

        def forward(self, x, sentences, known):
            k, v = known or self.read(sentences)
            mixed = F.scaled_dot_product_attention(split(self.q(x)), k, v)
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
            self.own, self.cross = SelfAttention(), CrossAttention()
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x, cache, past, sentences, known):
            x = x + self.own(self.norms[0](x), *cache, past)
            x = x + self.cross(self.norms[1](x), sentences, known)
            return x + self.mlp(self.norms[2](x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.ModuleList([Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids, caches, past, sentences, known):
            x = self.table(ids)
            for block, cache, keys in zip(self.blocks, caches, known):
                x = block(x, cache, past, sentences, keys)
            return self.head(self.norm(x))[:, -1]

    model, sentences = Decoder().eval(), torch.randn(rows, source, width)
    caches = [torch.zeros(2, rows, heads, tokens, width // heads) for _ in range(depth)]

    @torch.inference_mode()
    def translate():
        ids, known = torch.zeros(rows, 1, dtype=torch.long), [None] * depth
        if mended:
            known = [block.cross.read(sentences) for block in model.blocks]
        for past in range(tokens):
            scores = model(ids, caches, past, sentences, known)
            ids = scores.argmax(1, keepdim=True)
        return scores.square()

    return translate


@case(
    id="audio-phase-by-angle",
    round=20,
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Noise is removed by a mask on magnitudes; the phase is taken by angle and put back by a "
    "complex exponential, where the mask could multiply the spectrum itself.",
    symptom="aten::angle and aten::exp of complex [6, 257, 251] take more time than the network.",
    answer="enhance takes the spectrum apart with abs and angle and joins masked magnitude and "
    "phase with exp(1j * phase); the phase does not change, so multiply the complex spectrum by "
    "the mask: no angle, no exp.",
    names=("aten::angle", "aten::exp", "angle", "exp(1j", "complex exponential", "phase"),
    actions=("multiply the spectrum", "multiply the complex", "spectrum by the mask",
             "mask times", "mask the complex", "spectra * mask", "scale the complex",
             "mask to the complex", "apply the mask", "keep the complex", "real mask",
             "complex spectrum directly", "without angle", "directly", "divide by its magnitude"),
)
def audio_phase_by_angle(mended):
    clips, length, bins, width = 6, 32_000, 257, 48

    class MaskNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(bins, width, 1), nn.ReLU(), nn.Conv1d(width, width, 3, padding=1),
                nn.ReLU(), nn.Conv1d(width, bins, 1), nn.Sigmoid(),
            )

        def forward(self, magnitude):
            return self.layers(magnitude)

    model, window, sounds = MaskNetwork().eval(), torch.hann_window(512), torch.randn(clips, length)

    @torch.inference_mode()
    def enhance():
        spectra = torch.stft(sounds, 512, 128, window=window, return_complex=True)
        magnitude = spectra.abs()
        mask = model(magnitude)
        if mended:
            cleaned = spectra * mask
        else:
            cleaned = magnitude * mask * torch.exp(1j * spectra.angle())
        return torch.istft(cleaned, 512, 128, window=window, length=length).square()

    return enhance


@case(
    id="graph-counts-as-wide-as-features",
    round=20,
    domain="graphs",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True, profile_memory=True),
    cause="A mean over neighbours counts them by adding up a tensor of ones as wide as the "
    "messages, in each layer and step.",
    symptom="aten::ones_like of [32000, 96] and a second aten::index_add of that shape in each "
    "MeanLayer.",
    answer="MeanLayer adds up ones of the shape of the messages to count the neighbours of each "
    "node; a count is one number a node and does not change: take it by bincount once (or add up "
    "[32000, 1]) and divide.",
    names=("ones_like", "index_add", "MeanLayer", "aten::fill_"),
    actions=("bincount", "degree", "once", "precompute", "one column", "a vector", "[32000, 1]",
             "[32000]", "one number", "count the", "in advance", "cache", "narrow", "1-d", "1d",
             "scatter_reduce", "index_reduce"),
)
def graph_counts_as_wide_as_features(mended):
    nodes, edges, width = 2000, 32_000, 96

    class MeanLayer(nn.Module):
        def __init__(self, inputs):
            super().__init__()
            self.own, self.other = nn.Linear(inputs, width), nn.Linear(inputs, width, bias=False)

        def forward(self, h):
            messages = self.other(h).index_select(0, source)
            sums = messages.new_zeros(nodes, width).index_add(0, target, messages)
            found = counts
            if not mended:
                ones = torch.ones_like(messages)
                found = messages.new_zeros(nodes, width).index_add(0, target, ones)
            return self.own(h) + sums / found.clamp(min=1)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = MeanLayer(32), MeanLayer(width)
            self.leave = nn.Linear(width, 6)

        def forward(self, features):
            return self.leave(F.relu(self.second(F.relu(self.first(features)))))

    source, target = torch.randint(nodes, (2, edges))
    counts = target.bincount(minlength=nodes).float()[:, None]
    model = Network()
    features, labels = torch.randn(nodes, 32), torch.randint(6, (nodes,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-field-products",
    round=20,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A factorisation machine computes the products of all pairs of 36 fields and sums them, "
    "where half of the square of the sum minus the sum of squares gives the same.",
    symptom="aten::bmm gives [1536, 36, 36]; aten::index takes 630 pairs of each row, and its "
    "backward puts them back with index_put_.",
    answer="Pairs of fields are multiplied (bmm, then index by triu_indices) and summed at once; "
    "use the identity ((sum of vectors)^2 - sum of squares) / 2, which needs no pairs.",
    names=("aten::index", "IndexBackward", "index_put", "aten::bmm", "pairs", "[1536, 36, 36]",
           "triu"),
    actions=("square of the sum", "sum of squares", "squared sum", "sum of the squares",
             "identity", "sum-square", "square of sum", "without the pairs", "linear time",
             "minus the sum", "minus the diagonal", "factorisation machine trick", "FM trick"),
)
def recommender_field_products(mended):
    fields, values, width, batch = 36, 400, 16, 1536

    class Machine(nn.Module):
        def __init__(self):
            super().__init__()
            self.vectors, self.weights = nn.Embedding(fields * values, width), nn.Embedding(
                fields * values, 1
            )
            self.deep = nn.Sequential(nn.Linear(fields * width, 64), nn.ReLU(), nn.Linear(64, 1))

        def pairs(self, vectors):
            if mended:
                return (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
            products = vectors @ vectors.transpose(1, 2)
            return products[:, one, other].sum(1)

        def forward(self, ids):
            vectors = self.vectors(ids)
            linear = self.weights(ids).sum((1, 2))
            return linear + self.pairs(vectors) / fields + self.deep(vectors.flatten(1))[:, 0]

    one, other = torch.triu_indices(fields, fields, 1)
    model = Machine()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(values, (batch, fields)) + torch.arange(fields) * values
    clicks = torch.randint(2, (batch,)).float()

    def train_step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(ids), clicks)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-forces-by-backward",
    round=20,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A simulation takes forces by energy.backward(), which computes gradients of the trained "
    "weights too, and no one reads them.",
    symptom="AccumulateGrad and an aten::mm for each weight in the backward, though no optimizer "
    "runs; the first layer's [224, 2450] by [2450, 224] are among them.",
    answer="forces calls backward, which also computes and adds up gradients of all weights of the "
    "potential; take torch.autograd.grad(energy, positions), or set requires_grad_(False) on the "
    "model.",
    names=("AccumulateGrad", "backward", "AddmmBackward", "aten::mm", "weights", "forces"),
    actions=("autograd.grad", "requires_grad_(False)", "requires_grad", "freeze", "inputs=",
             "positions alone", "positions only", "only the positions", "only for the positions"),
)
def science_forces_by_backward(mended):
    atoms, centres, width, moves = 50, 40, 224, 2

    class Potential(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("centres", torch.linspace(0, 4, centres))
            self.layers = nn.Sequential(
                nn.Linear(centres, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1),
            )

        def forward(self, positions):
            apart = (positions[one] - positions[other]).square().sum(1, keepdim=True).sqrt()
            return self.layers((-4 * (apart - self.centres).square()).exp()).sum()

    one, other = (~torch.eye(atoms, dtype=torch.bool)).nonzero().t()
    model, start = Potential().eval(), torch.rand(atoms, 3) * 4

    def forces(positions):
        positions = positions.detach().requires_grad_()
        energy = model(positions)
        if mended:
            return -torch.autograd.grad(energy, positions)[0]
        energy.backward()
        return -positions.grad

    def simulate():
        positions, speeds = start, torch.zeros_like(start)
        for _ in range(moves):
            speeds = speeds + 0.01 * forces(positions)
            positions = positions + 0.01 * speeds
        return positions.square()

    return simulate


@case(
    id="generative-norms-by-svd",
    round=20,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="Gradients are clipped by their norm, but the norm of a matrix is taken with ord=2: its "
    "largest singular value, by a decomposition.",
    symptom="aten::linalg_svdvals (_linalg_svd) for each of the gradients after each backward.",
    answer="clip takes torch.linalg.matrix_norm(gradient, 2), which is a singular value "
    "decomposition of each gradient; clipping needs the Euclidean norm: use clip_grad_norm_ or "
    "torch.linalg.vector_norm.",
    names=("svdvals", "linalg_svd", "matrix_norm", "svd"),
    actions=("vector_norm", "clip_grad_norm", "Frobenius", "fro", "Euclidean", "flatten",
             "L2 norm", "power iteration", ".norm()", "get_total_norm"),
)
def generative_norms_by_svd(mended):
    inputs, width, batch = 64, 320, 256

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.time = nn.Linear(inputs, width), nn.Linear(1, width)
            self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
            self.leave = nn.Linear(width, inputs)

        def forward(self, noisy, t):
            h = self.enter(noisy) + self.time(t)
            for layer in self.layers:
                h = h + F.silu(layer(h))
            return self.leave(h)

    def norm_of(gradient):
        if mended or gradient.dim() < 2:
            return torch.linalg.vector_norm(gradient)
        return torch.linalg.matrix_norm(gradient, 2)

    def clip(weights, most):
        gradients = [weight.grad for weight in weights]
        total = torch.stack([norm_of(gradient) for gradient in gradients]).square().sum().sqrt()
        torch._foreach_mul_(gradients, (most / (total + 1e-6)).clamp(max=1.0))

    model, samples = Denoiser(), torch.randn(batch, inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        noise, t = torch.randn_like(samples), torch.rand(batch, 1)
        optimizer.zero_grad()
        loss = F.mse_loss(model((1 - t) * samples + t * noise, t), noise - samples)
        loss.backward()
        clip(list(model.parameters()), 1.0)
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-centring-matrix",
    round=20,
    domain="tabular",
    mode="training",
    profile=Profile(record_shapes=True, with_modules=True),
    cause="An independence penalty (HSIC) centres its kernel by two products with the centring "
    "matrix, where rows' and columns' means could be subtracted.",
    symptom="aten::mm of [896, 896] by [896, 896] twice forward and twice backward, more time than "
    "all layers.",
    answer="The kernel matrix is centred as H @ K @ H with a dense 896 x 896 matrix: four cubic "
    "products a step; subtract the means of rows and columns and add the mean of all.",
    names=("aten::mm", "896, 896", "MmBackward", "aten::matmul", "centring"),
    actions=("subtract the mean", "subtract the row", "means of rows", "row and column means",
             "row means", "row mean", "column mean", "means of the rows", "subtract means",
             "mean of each row", "the mean"),
)
def tabular_centring_matrix(mended):
    columns, width, batch = 40, 64, 896

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, 16),
            )
            self.head = nn.Linear(16, 1)

        def forward(self, table):
            h = self.body(table)
            return self.head(h)[:, 0], h

    def kernel(x):
        squares = x.square().sum(1)
        return (-(squares[:, None] + squares - 2 * x @ x.t()) / x.shape[1]).exp()

    def centred(gram):
        if mended:
            return gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
        return centring @ gram @ centring

    centring = torch.eye(batch) - 1 / batch
    model = Scorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    table, wanted = torch.randn(batch, columns), torch.randint(2, (batch,)).float()
    private = kernel(torch.randn(batch, 2))

    def train_step():
        optimizer.zero_grad()
        scores, h = model(table)
        penalty = (centred(kernel(h)) * private).sum() / (batch - 1) ** 2
        loss = F.binary_cross_entropy_with_logits(scores, wanted) + 10 * penalty
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-kalman-same-covariance",
    round=20,
    domain="time series",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A Kalman filter carries a covariance for each of 2,000 series, though all series have "
    "the same model and a covariance does not depend on what is seen.",
    symptom="linalg_inv of [2000, 2, 2] and bmm of [2000, 6, 6] at each of 24 moments.",
    answer="filter_all updates 2,000 equal covariances and gains: they depend on the model alone; "
    "carry one 6 x 6 covariance and one gain a moment for all series, or compute the gains once.",
    names=("linalg_inv", "aten::bmm", "covariance", "filter_all", "2000, 6, 6", "gain",
           "linalg_inv_ex"),
    actions=("one covariance", "once", "same for all", "shared", "single covariance", "one gain",
             "one 6 x 6", "steady", "precompute", "for all series", "share", "do not depend",
             "not depend on the data", "in advance", "unbatched", "broadcast"),
)
def timeseries_kalman_same_covariance(mended):
    series, length, states, seen = 2000, 24, 6, 2

    moves = torch.eye(states).double() + 0.1 * torch.ones(states, states).triu(1)
    reads = torch.randn(seen, states).double()
    drift, noise = 0.05 * torch.eye(states).double(), 0.2 * torch.eye(seen).double()
    observed = torch.randn(length, series, seen).double()

    @torch.inference_mode()
    def filter_all():
        copies = 1 if mended else series
        state = moves.new_zeros(series, states)
        covariance = torch.eye(states).double().repeat(copies, 1, 1)
        for found in observed:
            state = state @ moves.t()
            covariance = moves @ covariance @ moves.t() + drift
            across = covariance @ reads.t()
            gain = across @ torch.linalg.inv(reads @ across + noise)
            error = found - state @ reads.t()
            state = state + (gain @ error[:, :, None])[:, :, 0]
            covariance = covariance - gain @ across.transpose(1, 2)
        return state.square()

    return filter_all


@case(
    id="distributed-pools-after-exchange",
    round=20,
    domain="recommenders",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each rank owns one table and sends the vectors of all 40 items of each history; the "
    "rank that receives them takes their mean.",
    symptom="gloo:all_to_all of [2, 1000, 40, 64], with aten::mean over the 40 items behind it.",
    answer="exchange sends the vectors of single items between ranks, and they are averaged after "
    "it; average the 40 vectors of each history before the exchange, which sends a fortieth of "
    "the bytes.",
    names=("all_to_all", "alltoall", "exchange", "aten::mean"),
    actions=("before the exchange", "pool before", "mean before", "average before", "pool first",
             "before sending", "before they are sent", "before it sends", "before all_to_all",
             "before the all", "EmbeddingBag", "pooled", "average first", "before communic",
             "reduce before", "on the sending", "on the owner", "locally"),
)
def distributed_pools_after_exchange(mended, rank, world):
    items, width, rows, length = 8000, 64, 1000, 40

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(items, width)
            self.layers = nn.Sequential(
                nn.Linear(world * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                nn.Linear(128, 1),
            )

        def forward(self, histories):
            vectors = self.table(histories)
            if mended:
                pooled = exchange(vectors.mean(2))
            else:
                pooled = exchange(vectors).mean(2)
            return self.layers(pooled.transpose(0, 1).flatten(1))

    def exchange(vectors):
        received = torch.empty_like(vectors)
        dist.all_to_all_single(received, vectors)
        return received

    model = Ranker().eval()
    histories = torch.randint(items, (world, world, rows, length))[rank]

    @torch.inference_mode()
    def rank_items():
        return model(histories).sigmoid()

    return rank_items
