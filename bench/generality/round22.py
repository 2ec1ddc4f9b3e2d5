# SPDX-License-Identifier: Apache-2.0
"""Round 22: dense forms of sparse facts, and the same thing sent or read many times."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-paste-masks-whole-image",
    round=22,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=2),
    cause="The mask of each of 36 objects is sampled at all points of the image, though a box "
    "covers some hundredth of it.",
    symptom="aten::grid_sampler_2d gives [36, 1, 320, 320] after a short mask head.",
    answer="paste samples each 28 x 28 mask at all 320 x 320 points of the image; outside the box "
    "the mask is zero. Sample the points of the box alone (crop by crop, or resize each mask to "
    "its box) and write the crop into an empty image.",
    names=("grid_sampl", "paste", "grid_sampler_2d", "whole image", "full image"),
    actions=("box alone", "inside the box", "within the box", "only the box", "box region",
             "crop", "the box", "its box", "each box", "their box", "region of", "skip_empty",
             "bounding box", "boxes only", "interior"),
)
def vision_paste_masks_whole_image(mended):
    objects, side, channels, width = 36, 320, 48, 48

    class MaskHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True),
                nn.ConvTranspose2d(width, 32, 2, 2), nn.ReLU(inplace=True),
                nn.Conv2d(32, 1, 1, bias=False),
            )

        def forward(self, regions):
            return (8 * self.layers(regions)).sigmoid()

    model, regions = MaskHead().eval(), torch.randn(objects, channels, 14, 14)
    corners = torch.rand(objects, 2) * (side - 64)
    boxes = torch.cat([corners, corners + 20 + 44 * torch.rand(objects, 2)], 1)
    points = torch.arange(side) + 0.5

    def sample(masks, boxes, x, y):
        (left, top), (right, bottom) = boxes[:, :2].t(), boxes[:, 2:].t()
        x = 2 * (x - left[:, None]) / (right - left)[:, None] - 1
        y = 2 * (y - top[:, None]) / (bottom - top)[:, None] - 1
        grid = torch.stack(torch.broadcast_tensors(x[:, None], y[:, :, None]), 3)
        return F.grid_sample(masks, grid, align_corners=False)[:, 0] > 0.5

    def paste(masks):
        if not mended:
            return sample(masks, boxes, points, points)
        images = torch.zeros(objects, side, side, dtype=torch.bool)
        low, high = boxes[:, :2].floor().int().tolist(), boxes[:, 2:].ceil().int().tolist()
        for i, ((left, top), (right, bottom)) in enumerate(zip(low, high)):
            images[i, top:bottom, left:right] = sample(
                masks[i : i + 1], boxes[i : i + 1], points[left:right], points[top:bottom]
            )[0]
        return images

    @torch.inference_mode()
    def segment():
        return paste(model(regions)).sum((1, 2))

    return segment


@case(
    id="language-dispatch-by-one-hot",
    round=22,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="Tokens are sent to their experts and back by products with a one-hot tensor of tokens, "
    "experts and places.",
    symptom="aten::bmm of [2048, 1024] by [1024, 128] and of [1024, 2048] by [2048, 128] in each "
    "Mixture, dearer than the experts' own products.",
    answer="Mixture dispatches and combines by einsum with a one-hot tensor [1024, 8, 256], a "
    "quadratic product of zeros; move the rows by index instead: index_copy (or gather) of each "
    "token into its place and index_select back.",
    names=("einsum", "dispatch", "one-hot", "one_hot", "2048, 1024", "Mixture", "1024, 8, 256",
           "aten::bmm", "combine"),
    actions=("index", "gather", "scatter", "sort", "permut", "by their place", "move the rows",
             "copy the rows", "take the rows", "select the rows"),
)
def language_dispatch_by_one_hot(mended):
    width, inner, heads, words, tags, experts = 128, 256, 4, 800, 20, 8
    rows, length = 8, 128
    tokens = rows * length
    places = 2 * tokens // experts

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(width, experts)
            self.up = nn.Parameter(torch.randn(experts, width, inner) / width**0.5)
            self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)

        def experts_of(self, x):
            return torch.bmm(F.gelu(torch.bmm(x, self.up)), self.down)

        def forward(self, x):
            chance, chosen = self.router(x).softmax(1).max(1)
            hot = F.one_hot(chosen, experts)
            place = (hot.cumsum(0) * hot).sum(1) - 1
            fits = place < places
            if mended:
                spare = experts * places
                slot = torch.where(fits, chosen * places + place, spare)
                sent = x.new_zeros(spare + 1, width).index_copy(0, slot, x)[:-1]
                made = self.experts_of(sent.view(experts, places, width)).flatten(0, 1)
                made = torch.cat([made, made.new_zeros(1, width)]).index_select(0, slot)
                return made * chance[:, None]
            hot = (hot * fits[:, None]).float()
            at = F.one_hot(place.clamp(max=places - 1), places).float()
            dispatch = torch.einsum("te,tp->tep", hot, at)
            made = self.experts_of(torch.einsum("tep,tw->epw", dispatch, x))
            return torch.einsum("tep,epw->tw", dispatch * chance[:, None, None], made)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mixture = Mixture()

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mixture(self.second(x).flatten(0, 1)).view_as(x)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.Sequential(Block(), Block())
            self.head = nn.Linear(width, tags)

        def forward(self, ids):
            return self.head(self.blocks(self.table(ids)))

    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids, labels = torch.randint(words, (rows, length)), torch.randint(tags, (rows, length))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-relative-embeddings-by-pair",
    round=22,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=3),
    cause="Relative positions are looked up as a vector for each pair of frames, though 224 "
    "distances alone occur.",
    symptom="aten::embedding gives [224, 224, 32] in each block, bmm with 224 batches follows, and "
    "embedding_dense_backward of 50,000 rows.",
    answer="distances makes a vector for each of 224 x 224 pairs and multiplies queries by it; "
    "multiply the queries by the 224 vectors of the table once (matmul) and shift the result into "
    "place (skew by pad and view, or gather).",
    names=("aten::embedding", "224, 224, 32", "embedding_dense_backward", "distances", "relative",
           "EmbeddingBackward", "pair"),
    actions=("skew", "shift", "pad and", "gather", "table once", "multiply the queries by the",
             "times the table", "by the table", "before the lookup", "queries by the 224",
             "table.t()", "matmul with the table", "strided", "index the scores",
             "index the product", "with the table"),
)
def audio_relative_embeddings_by_pair(mended):
    clips, frames, bands, width, heads, depth, tones = 2, 224, 40, 128, 4, 2, 48

    causal = torch.ones(frames, frames, dtype=torch.bool).tril()
    apart = (torch.arange(frames) - torch.arange(frames)[:, None]).clamp(max=0) + frames - 1

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.table = nn.Embedding(frames, width // heads)

        def distances(self, q):
            if mended:
                scores = F.pad(q @ self.table.weight.t(), (1, 0))
                return scores.view(clips, heads, frames + 1, frames)[:, :, 1:]
            return torch.einsum("bhid,ijd->bhij", q, self.table(apart))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            bias = self.distances(q * q.shape[3] ** -0.5).masked_fill(~causal, -torch.inf)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Transcriber(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(bands, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.leave = nn.Linear(width, tones)

        def forward(self, spectra):
            return self.leave(self.blocks(self.enter(spectra)))

    model, spectra = Transcriber(), torch.randn(clips, frames, bands)
    played = torch.randint(2, (clips, frames, tones)).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(spectra), played)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-relabel-by-dict",
    round=22,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each batch of sampled neighbours is renumbered by a Python dict, node by node.",
    symptom="Much of the step is outside all ops: relabel runs in Python after tolist of 50,000 "
    "ids, and torch.tensor makes tensors of lists.",
    answer="relabel turns ids into lists and renumbers them through a dict in Python, some 50,000 "
    "look-ups a step in which no op runs; torch.unique(return_inverse=True), or a table of new "
    "numbers indexed by id, does it in tensors.",
    names=("relabel", "dict", "Python", "tolist", "renumber", "outside", "aten::tensor"),
    actions=("unique", "return_inverse", "searchsorted", "lookup table", "look-up table",
             "table of new", "vectori", "tensor op", "index_put", "table indexed", "in tensors",
             "arange", "mapping tensor", "scatter", "without Python"),
)
def graph_relabel_by_dict(mended):
    nodes, known, seeds, near, inputs, width, kinds = 12_000, 16, 400, 10, 32, 64, 8

    class Layer(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.own = nn.Linear(inputs, outputs)
            self.other = nn.Linear(inputs, outputs, bias=False)

        def forward(self, own, others):
            return self.own(own) + self.other(others)

    class Sage(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(inputs, width)
            self.first, self.second = Layer(width, width), Layer(width, kinds)

        def forward(self, features, centre, ring, far):
            h = F.relu(self.enter(features))
            middle = torch.cat([centre, ring.flatten()])
            around = F.embedding_bag(torch.cat([ring, far]), h, mode="mean")
            h = F.relu(self.first(F.embedding(middle, h), around))
            own, others = h.split([seeds, seeds * near])
            return self.second(own, others.view(seeds, near, -1).mean(1))

    def draw(ids):
        return neighbours[ids[:, None], torch.randint(known, (len(ids), near))]

    def relabel(centre, ring, far):
        parts = [centre, ring.flatten(), far.flatten()]
        if mended:
            ids, numbers = torch.cat(parts).unique(return_inverse=True)
        else:
            old = torch.cat(parts).tolist()
            new = {i: number for number, i in enumerate(dict.fromkeys(old))}
            numbers, ids = torch.tensor([new[i] for i in old]), torch.tensor(list(new))
        numbers = numbers.split([len(part) for part in parts])
        return ids, numbers[0], numbers[1].view(-1, near), numbers[2].view(-1, near)

    neighbours = torch.randint(nodes, (nodes, known))
    features, labels = torch.randn(nodes, inputs), torch.randint(kinds, (nodes,))
    model = Sage()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        centre = torch.randint(nodes, (seeds,))
        ring = draw(centre)
        far = draw(ring.flatten())
        ids, *places = relabel(centre, ring, far)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features[ids], *places), labels[centre])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-prefix-for-each-target",
    round=22,
    domain="recommenders",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True),
    cause="A causal sequence model is trained on each prefix of each history as a row of its own, "
    "padded to full length; one row of a history gives all its targets.",
    symptom="Blocks run on [320, 20, 64] for 16 users; the last real place of each row alone is "
    "gathered.",
    answer="The batch holds 20 prefixes of each of 16 histories, 320 padded rows, and uses one "
    "output of each; the attention is causal, so one pass over the 16 histories gives the outputs "
    "at all places: predict the next item at each place.",
    names=("prefix", "320", "gather", "padded", "same histor", "320, 20", "last place",
           "one position", "last position"),
    actions=("one pass", "all places", "all positions", "each place", "every position",
             "each position", "once over", "16 histories", "whole history", "one row",
             "every place",
             "full history", "full sequence", "whole sequence", "one forward", "single pass",
             "shifted", "teacher forcing"),
)
def recommender_prefix_for_each_target(mended):
    users, length, items, width, heads = 16, 20, 1200, 64, 2

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class NextItem(nn.Module):
        def __init__(self):
            super().__init__()
            self.items, self.places = nn.Embedding(items, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(Block(), Block())
            self.norm = nn.LayerNorm(width)
            nn.init.normal_(self.items.weight, std=width**-0.5)

        def encode(self, histories):
            return self.norm(self.blocks(self.items(histories) + self.places.weight))

        def score(self, h):
            return F.linear(h, self.items.weight)

    model = NextItem()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    bought = torch.randint(1, items, (users, length + 1))
    histories, targets = bought[:, :-1], bought[:, 1:].flatten()
    real = torch.ones(length, length, dtype=torch.long).tril()
    prefixes = (histories[:, None] * real).flatten(0, 1)
    last = torch.arange(length).repeat(users)[:, None, None].expand(-1, 1, width)

    def train_step():
        optimizer.zero_grad()
        if mended:
            h = model.encode(histories).flatten(0, 1)
        else:
            h = model.encode(prefixes).gather(1, last)[:, 0]
        loss = F.cross_entropy(model.score(h), targets)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-block-diagonal-solve",
    round=22,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="An implicit step of 50 independent reactors puts their matrices on the diagonal of one "
    "dense matrix and solves it.",
    symptom="aten::block_diag and aten::linalg_solve of [600, 600] in each Newton iteration.",
    answer="implicit_step solves one dense system of 600 numbers, in which all but the 50 blocks "
    "of 12 x 12 are zero; call torch.linalg.solve on the batch [50, 12, 12]: the reactors do not "
    "meet.",
    names=("block_diag", "linalg_solve", "600, 600", "linalg.solve", "implicit_step", "lu_factor"),
    actions=("batch", "[50, 12, 12]", "50 blocks", "block by block", "each block", "small systems",
             "per reactor", "each reactor", "separately", "12 x 12", "12x12", "independent",
             "without block_diag"),
)
def science_block_diagonal_solve(mended):
    reactors, species, iterations, pace = 50, 12, 4, 0.3

    rates = torch.randn(species, species).double()
    feed, start = torch.randn(species).double(), torch.rand(reactors, species).double()
    own = torch.eye(species).double()

    def solve(blocks, right):
        if mended:
            return torch.linalg.solve(blocks, right)
        return torch.linalg.solve(torch.block_diag(*blocks), right.flatten()).view_as(right)

    @torch.inference_mode()
    def implicit_step():
        state = start
        for _ in range(iterations):
            speed = torch.tanh(state @ rates.t() + feed)
            error = state - start - pace * speed
            slopes = own - pace * (1 - speed.square())[:, :, None] * rates
            state = state - solve(slopes, error)
        return state.square()

    return implicit_step


@case(
    id="generative-all-tones-likelihood",
    round=22,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=2),
    cause="The loss computes the chance of all 256 tones for each number of an image and takes "
    "the one that is there.",
    symptom="aten::sigmoid, sub and log of [4, 3, 32, 32, 256], then aten::gather of one of the "
    "last 256.",
    answer="log_chance evaluates the distribution at the edges of all 256 tones for each pixel and "
    "gathers one; evaluate it at the two edges of the observed tone alone: two sigmoids a pixel.",
    names=("log_chance", "sigmoid", "gather", "256 tones", "32, 32, 256", "32, 32, 255",
           "all tones"),
    actions=("two edges", "observed", "two sigmoids", "only the tone", "the tone that",
             "actual tone", "target tone", "its own edges", "edges of the", "only the target",
             "true tone", "both edges", "that occurs", "gather first", "gather the edges"),
)
def generative_all_tones_likelihood(mended):
    images, side, width, tones = 4, 32, 48, 256

    class Painter(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(
                nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 32, 4, 2, 1), nn.ReLU(),
            )
            self.up = nn.Sequential(
                nn.ConvTranspose2d(32, width, 4, 2, 1), nn.ReLU(),
                nn.ConvTranspose2d(width, 6, 4, 2, 1),
            )

        def forward(self, pictures):
            return self.up(self.down(pictures)).chunk(2, 1)

    edges = (torch.arange(1, tones) / tones - 0.5) * 2

    def log_chance(mean, spread, values):
        if mended:
            scale = spread.exp()
            low = torch.sigmoid((values / tones * 2 - 1 - mean) / scale)
            high = torch.sigmoid(((values + 1) / tones * 2 - 1 - mean) / scale)
            low, high = low.masked_fill(values == 0, 0), high.masked_fill(values == tones - 1, 1)
            return (high - low).clamp(min=1e-7).log()
        below = torch.sigmoid((edges - mean[..., None]) / spread.exp()[..., None])
        below = F.pad(F.pad(below, (0, 1), value=1.0), (1, 0))
        chances = (below[..., 1:] - below[..., :-1]).clamp(min=1e-7)
        return chances.log().gather(4, values[..., None])[..., 0]

    model = Painter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    values = torch.randint(tones, (images, 3, side, side))
    pictures = values / tones * 2 - 1

    def train_step():
        optimizer.zero_grad()
        loss = -log_chance(*model(pictures), values).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-micro-batches",
    round=22,
    domain="tabular",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True, steps=2),
    cause="Gradients are accumulated over 64 micro-batches of 16 rows, though the whole batch of "
    "1,024 rows takes a few megabytes.",
    symptom="Forward and backward run 64 times before each optimizer step, with addmm of 16 rows "
    "and AccumulateGrad of each weight.",
    answer="train_step accumulates gradients over 64 micro-batches of 16 rows, so each weight is "
    "read and its gradient added 64 times; run one batch of 1,024 rows (or a few large ones): the "
    "gradient is the same.",
    names=("micro-batch", "micro batch", "microbatch", "16 rows", "accumulat", "AccumulateGrad",
           "64 times", "64 backward", "64 forward"),
    actions=("larger batch", "larger micro", "one batch", "whole batch", "bigger batch",
             "fewer micro", "bigger micro", "1,024 rows", "1024 rows", "full batch", "large batch",
             "fewer accumulation", "single batch", "at once", "more rows", "fewer, larger",
             "larger pieces", "one forward", "in one"),
)
def tabular_micro_batches(mended):
    rows, columns, width = 1024, 48, 320
    pieces = 1 if mended else 64

    class Regressor(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
            )

        def forward(self, table):
            return self.layers(table)[:, 0]

    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    table, wanted = torch.randn(rows, columns), torch.randn(rows)

    def train_step():
        optimizer.zero_grad()
        total = torch.zeros(())
        for part, goal in zip(table.chunk(pieces), wanted.chunk(pieces)):
            loss = F.mse_loss(model(part), goal) / pieces
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return train_step


@case(
    id="timeseries-reverse-read-at-one-step",
    round=22,
    domain="time series",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A forecaster runs an LSTM in both directions over 96 moments and reads the output of "
    "the last moment alone, where the reverse direction has made one step.",
    symptom="Two directions of LSTM of the same length run; aten::select takes the last of 96 "
    "moments.",
    answer="The reverse direction of the LSTM runs over all 96 moments, but the last moment's "
    "output is read, which it reaches in its first step; run the forward direction alone "
    "(bidirectional=False), or run one step of the reverse cell on the last moment.",
    names=("reverse direction", "bidirectional", "both directions", "backward direction",
           "two directions", "second direction", "lstm", "reverse"),
    actions=("bidirectional=False", "one direction", "forward direction alone", "single direction",
             "unidirectional", "one step of", "only the last moment", "drop the reverse",
             "forward direction only", "only the forward direction", "single step", "one cell step",
             "LSTMCell", "one-directional", "without the reverse", "remove the reverse",
             "drop the backward", "only forward"),
)
def timeseries_reverse_read_at_one_step(mended):
    batch, length, inputs, width, horizon = 32, 96, 12, 128, 24

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(inputs, width, bidirectional=True)
            self.leave = nn.Linear(2 * width, horizon)

        def forward(self, series):
            return self.leave(self.rnn(series)[0][-1])

    class LeanForecaster(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.forwards, self.reverse = nn.LSTM(inputs, width), nn.LSTM(inputs, width)
            self.leave, known = model.leave, model.rnn.state_dict()
            self.forwards.load_state_dict({k: known[k] for k in known if "reverse" not in k})
            self.reverse.load_state_dict(
                {k.replace("_reverse", ""): known[k] for k in known if "reverse" in k}
            )

        def forward(self, series):
            read = self.forwards(series)[0][-1], self.reverse(series[-1:])[0][-1]
            return self.leave(torch.cat(read, 1))

    model, series = Forecaster(), torch.randn(length, batch, inputs)
    if mended:
        model = LeanForecaster(model)
    model.eval()

    @torch.inference_mode()
    def forecast():
        return model(series).square()

    return forecast


@case(
    id="distributed-repeat-kv-before-gather",
    round=22,
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each rank holds half of a long text; keys and values of one head are repeated for all "
    "16 query heads before the ranks exchange them.",
    symptom="gloo:all_gather of [2, 16, 192, 32] for keys and values in each block, after "
    "aten::repeat_interleave or expand of one head.",
    answer="gather sends keys and values after they are repeated 16 times for the query heads; "
    "gather the one head that was computed and repeat (or expand) it behind the exchange: a "
    "sixteenth of the bytes.",
    names=("all_gather", "allgather", "gather", "repeat", "repeat_interleave", "keys and values"),
    actions=("before it is repeated", "before repeat", "repeat after", "after the exchange",
             "after the gather", "behind the exchange", "gather first", "behind the gather",
             "gather before", "one head", "enable_gqa", "expand after", "unrepeated",
             "repeat later",
             "original head", "single head", "before the repeat", "after all_gather",
             "after the all_gather", "before expand", "fewer heads"),
)
def distributed_repeat_kv_before_gather(mended, rank, world):
    width, heads, part, depth, rows, length, words = 128, 16, 32, 3, 2, 192, 600

    def gather(x):
        found = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(found, x)
        return torch.cat(found, 2)

    def repeat(x):
        return x.repeat_interleave(heads, 1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.kv = nn.Linear(width, heads * part), nn.Linear(width, 2 * part)
            self.out = nn.Linear(heads * part, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            h = self.first(x)
            q = self.q(h).unflatten(2, (heads, -1)).transpose(1, 2)
            k, v = (one.contiguous()[:, None] for one in self.kv(h).chunk(2, 2))
            if mended:
                k, v = gather(torch.cat([k, v], 3)).chunk(2, 3)
                k, v = k.expand(-1, heads, -1, -1), v.expand(-1, heads, -1, -1)
            else:
                k, v = gather(torch.cat([repeat(k), repeat(v)], 3)).chunk(2, 3)
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])

        def forward(self, ids):
            return self.blocks(self.table(ids))

    model = Encoder().eval()
    ids = torch.randint(words, (world, rows, length))[rank]

    @torch.inference_mode()
    def encode():
        return model(ids).square()

    return encode
