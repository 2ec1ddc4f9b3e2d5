# SPDX-License-Identifier: Apache-2.0
"""Round 21: work on parts that are thrown away, and sums that are begun anew."""

from itertools import permutations

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-encodes-hidden-patches",
    round=21,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A masked autoencoder runs its encoder on all 64 patches; 48 of them are hidden by a "
    "mask of attention and dropped behind the encoder.",
    symptom="Linear layers and attention of Encoder run on [16, 64, 160]; aten::gather takes "
    "[16, 16, 160] of the result.",
    answer="Encoder computes the hidden patches too, hides them from the others by an attention "
    "mask and drops them at the end; gather the 16 visible patches of each image before the "
    "blocks, so that the blocks read a quarter of the tokens and need no mask.",
    names=("Encoder", "gather", "hidden patches", "masked patches", "attn_mask", "visible",
           "attention mask"),
    actions=("before the blocks", "before the encoder", "visible patches only", "only visible",
             "only the visible", "visible tokens", "gather first", "drop the hidden",
             "drop the masked", "drop hidden", "drop masked", "drop them before", "earlier",
             "gather before", "select the visible", "only the 16", "quarter of the tokens",
             "16 tokens", "16 patches", "visible patches", "before encod"),
)
def vision_encodes_hidden_patches(mended):
    images, side, patch, kept, width, narrow, heads = 16, 64, 8, 16, 160, 64, 4
    patches, pixels = (side // patch) ** 2, 3 * patch**2

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, mask=None):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    def take(x, places):
        return x.gather(1, places[:, :, None].expand(-1, -1, x.shape[2]))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(pixels, width)
            self.places = nn.Parameter(torch.randn(patches, width) * 0.02)
            self.blocks = nn.ModuleList([Block(width) for _ in range(3)])

        def forward(self, cut, visible):
            if mended:
                x = self.enter(take(cut, visible)) + self.places[visible]
                for block in self.blocks:
                    x = block(x)
                return x
            mask = torch.zeros(images, patches, dtype=torch.bool).scatter_(1, visible, True)
            x = self.enter(cut) + self.places
            for block in self.blocks:
                x = block(x, mask[:, None, None])
            return take(x, visible)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.block = nn.Linear(width, narrow), Block(narrow)
            self.hidden = nn.Parameter(torch.randn(narrow) * 0.02)
            self.places = nn.Parameter(torch.randn(patches, narrow) * 0.02)
            self.leave = nn.Linear(narrow, pixels)

        def forward(self, coded, order):
            h = self.enter(coded)
            h = torch.cat([h, self.hidden.expand(images, patches - kept, -1)], 1)
            return self.leave(self.block(h + self.places[order])[:, kept:])

    encoder, decoder = Encoder(), Decoder()
    weights = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
    pictures = torch.rand(images, 3, side, side)
    rows = side // patch
    cut = pictures.view(images, 3, rows, patch, rows, patch).permute(0, 2, 4, 1, 3, 5)
    cut = cut.reshape(images, patches, pixels)

    def train_step():
        optimizer.zero_grad()
        order = torch.rand(images, patches).argsort(1)
        made = decoder(encoder(cut, order[:, :kept]), order)
        loss = F.mse_loss(made, take(cut, order[:, kept:]))
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-rotation-matrices",
    round=21,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Rotary positions are applied as a product of each token with a dense rotation matrix, "
    "though the matrix has two numbers in each row.",
    symptom="aten::bmm of [256, 2, 192] by [256, 192, 192] for queries and keys in each block, "
    "and in the backward again.",
    answer="rotate multiplies queries and keys by a dense 192 x 192 matrix for each of 256 places; "
    "each row of it has two numbers that are not zero. Rotate pairs elementwise: multiply by "
    "cosines and sines (rotate half) and add.",
    names=("rotate", "aten::bmm", "256, 192, 192", "rotation matri", "rotary", "BmmBackward"),
    actions=("elementwise", "element-wise", "cos", "sin", "rotate half", "rotate_half", "pairs",
             "complex", "two numbers", "without the matri", "pairwise", "no matrix"),
)
def language_rotation_matrices(mended):
    width, heads, depth, words, rows, length = 192, 6, 2, 500, 2, 256

    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    cosines, sines = angles.cos(), angles.sin()
    rotations = torch.zeros(length, width, width)
    even = torch.arange(0, width, 2)
    rotations[:, even, even] = rotations[:, even + 1, even + 1] = cosines
    rotations[:, even, even + 1], rotations[:, even + 1, even] = sines, -sines

    def rotate(x):
        if mended:
            one, other = x.unflatten(2, (-1, 2)).unbind(3)
            pairs = one * cosines - other * sines, one * sines + other * cosines
            return torch.stack(pairs, 3).flatten(2)
        return torch.bmm(x.transpose(0, 1), rotations).transpose(0, 1)

    def split(x):
        return x.unflatten(2, (heads, -1)).transpose(1, 2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).chunk(3, 2)
            mixed = F.scaled_dot_product_attention(
                split(rotate(q)), split(rotate(k)), split(v), is_causal=True
            )
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.norm(self.blocks(self.table(ids))))

    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(words, (rows, length + 1))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-permutations-each-loss",
    round=21,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=3),
    cause="A separator of four voices is trained whatever the order of voices; the loss of all "
    "24 orders is computed from the sounds, though there are 16 pairs of voices alone.",
    symptom="aten::index copies [8, 4, 8000] 24 times, with mul and sum behind each, and their "
    "backward 24 times.",
    answer="best_order puts the voices in each of 24 orders and computes the ratio on the whole "
    "sounds each time; compute the 4 x 4 ratios of pairs once (one batched product of sounds) and "
    "add up four of them for each order.",
    names=("best_order", "permutation", "orders", "aten::index", "24 times", "index_put", "ratio"),
    actions=("pairs once", "pairwise", "4 x 4", "4x4", "16 pairs", "each pair", "pair matrix",
             "matrix of pairs", "all pairs", "bmm", "matmul", "Hungarian", "linear_sum_assignment",
             "batched product", "ratios of pairs", "[8, 4, 4]", "every pair", "per pair"),
)
def audio_permutations_each_loss(mended):
    clips, length, voices, filters, width = 8, 8000, 4, 64, 64

    orders = torch.tensor(list(permutations(range(voices))))

    class Separator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv1d(1, filters, 32, 16, 8)
            self.layers = nn.Sequential(
                nn.Conv1d(filters, width, 3, 1, 1), nn.ReLU(),
                nn.Conv1d(width, width, 3, 1, 2, dilation=2), nn.ReLU(),
                nn.Conv1d(width, voices * filters, 1), nn.Sigmoid(),
            )
            self.leave = nn.ConvTranspose1d(filters, 1, 32, 16, 8)

        def forward(self, mixed):
            coded = self.enter(mixed[:, None]).relu()
            masks = self.layers(coded).unflatten(1, (voices, filters))
            parts = (masks * coded[:, None]).flatten(0, 1)
            return self.leave(parts).view(clips, voices, -1)

    def ratio(shared, made, wanted):
        signal = shared.square() / wanted
        return 10 * (signal / (made - signal + 1e-6)).log10()

    def power(sounds):
        return sounds.square().sum(-1)

    def best_order(made, wanted):
        if mended:
            pairs = ratio(
                made @ wanted.transpose(1, 2), power(made)[:, :, None], power(wanted)[:, None]
            )
            scores = pairs[:, orders, torch.arange(voices)].mean(2)
        else:
            scores = []
            for order in orders:
                turned = made[:, order]
                shared = (turned * wanted).sum(-1)
                scores.append(ratio(shared, power(turned), power(wanted)).mean(1))
            scores = torch.stack(scores, 1)
        return -scores.amax(1).mean()

    model, spoken = Separator(), torch.randn(clips, voices, length)
    mixed = spoken.sum(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = best_order(model(mixed), spoken)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-farthest-points-all-distances",
    round=21,
    domain="graphs",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="Farthest points are drawn from clouds; for each point all distances to all points drawn "
    "before are computed again, where one running minimum would do.",
    symptom="aten::sub, aten::square and aten::sum of [4, 1024, k, 3], with k from 1 to 63, and "
    "amin and argmax behind them.",
    answer="farthest computes distances to all chosen points in each round, so its work grows with "
    "the square of their number; keep the smallest distance of each point and update it with the "
    "distance to the newest point alone (torch.minimum).",
    names=("farthest", "aten::sub", "aten::amin", "1024, 63, 3", "distance", "aten::square"),
    actions=("running minimum", "newest", "last point", "minimum", "keep the", "incremental",
             "update", "only the new", "latest", "new point", "point alone", "carry",
             "just added", "last chosen", "torch_cluster", "fps("),
)
def graph_farthest_points_all_distances(mended):
    clouds, points, chosen, near, width = 4, 1024, 64, 16, 64

    class Gathering(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            )
            self.leave = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))

        def forward(self, cloud, centres):
            neighbours = torch.cdist(centres, cloud).topk(near, largest=False).indices
            found = cloud.gather(1, neighbours.flatten(1)[:, :, None].expand(-1, -1, 3))
            apart = found.view(clouds, chosen, near, 3) - centres[:, :, None]
            return self.leave(self.layers(apart).amax(2).amax(1))

    model, cloud = Gathering().eval(), torch.randn(clouds, points, 3)
    rows = torch.arange(clouds)

    def farthest():
        taken = torch.zeros(clouds, chosen, dtype=torch.long)
        if mended:
            last = cloud[:, :1]
            nearest = (cloud - last).square().sum(2)
            for k in range(1, chosen):
                taken[:, k] = found = nearest.argmax(1)
                last = cloud[rows, found][:, None]
                nearest = torch.minimum(nearest, (cloud - last).square().sum(2))
            return taken
        for k in range(1, chosen):
            drawn = cloud[rows[:, None], taken[:, :k]]
            nearest = (cloud[:, :, None] - drawn[:, None]).square().sum(3).amin(2)
            taken[:, k] = nearest.argmax(1)
        return taken

    @torch.inference_mode()
    def classify():
        centres = cloud[rows[:, None], farthest()]
        return model(cloud, centres).softmax(1).square()

    return classify


@case(
    id="recommender-dropout-whole-table",
    round=21,
    domain="recommenders",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True, profile_memory=True),
    cause="Dropout of whole items multiplies the whole table of pretrained vectors by a mask in "
    "each step, though a batch reads a few thousand rows.",
    symptom="aten::mul of [120000, 64] by [120000, 1] before aten::embedding of [128, 20].",
    answer="ItemDropout applies its mask to all 120,000 vectors and looks up 2,560 of them; "
    "look up the rows first and multiply these by the mask at the same ids.",
    names=("ItemDropout", "aten::mul", "120000", "120,000", "whole table", "dropout"),
    actions=("look up first", "lookup first", "rows first", "gathered", "after the embedding",
             "after the lookup", "looked-up", "looked up", "only the rows", "only rows", "gather",
             "mask[ids]", "mask at the", "index the mask", "behind the lookup", "of the batch",
             "after the look", "after embedding", "selected rows", "after lookup", "used rows"),
)
def recommender_dropout_whole_table(mended):
    items, width, rows, length, shelves = 120_000, 64, 128, 20, 400

    class ItemDropout(nn.Module):
        def __init__(self, vectors, rate=0.2):
            super().__init__()
            self.register_buffer("vectors", vectors)
            self.rate = rate

        def forward(self, ids):
            mask = torch.empty(items, 1).bernoulli_(1 - self.rate).div_(1 - self.rate)
            if mended:
                return F.embedding(ids, self.vectors) * F.embedding(ids, mask)
            return F.embedding(ids, self.vectors * mask)

    class NextShelf(nn.Module):
        def __init__(self, vectors):
            super().__init__()
            self.items = ItemDropout(vectors)
            self.score = nn.Linear(width, 1)
            self.layers = nn.Sequential(
                nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                nn.Linear(256, shelves),
            )

        def forward(self, histories):
            vectors = self.items(histories)
            share = self.score(vectors).softmax(1)
            return self.layers((share.transpose(1, 2) @ vectors)[:, 0])

    model = NextShelf(torch.randn(items, width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    histories, wanted = torch.randint(items, (rows, length)), torch.randint(shelves, (rows,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(histories), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-full-energy-each-flip",
    round=21,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=2),
    cause="A Metropolis sampler of a spin glass computes the energy of all spins for each flip of "
    "one spin, where the change follows from one row of couplings.",
    symptom="aten::mm of [48, 448] by [448, 448] for each of 48 proposed flips.",
    answer="sweep computes energy of the whole glass, a product with the full 448 x 448 matrix, "
    "to judge the flip of one spin; the change of energy is 2 s_i times the field at spin i: one "
    "column of the matrix (mv) suffices.",
    names=("energy", "aten::mm", "448, 448", "MatMul", "aten::matmul", "sweep"),
    actions=("change of energy", "energy change", "energy difference", "difference of energ",
             "local field", "one column", "one row", "the field", "local energy", "delta",
             "only the flipped", "single column", "single row", "column of", "row of",
             "incremental", "checkerboard"),
)
def science_full_energy_each_flip(mended):
    chains, spins, flips, heat = 48, 448, 48, 1.5

    couplings = torch.randn(spins, spins).double().triu(1) / spins**0.5
    couplings = couplings + couplings.t()
    start = torch.randint(2, (chains, spins)).double() * 2 - 1

    def energy(state):
        return -0.5 * ((state @ couplings) * state).sum(1)

    def change(state, site, now):
        if mended:
            return 2 * state[:, site] * (state @ couplings[site])
        tried = state.clone()
        tried[:, site] *= -1
        return energy(tried) - now

    @torch.inference_mode()
    def sweep():
        state = start.clone()
        now = energy(state)
        for site in range(flips):
            more = change(state, site, now)
            taken = torch.rand(chains) < (-more / heat).exp()
            state[:, site] = torch.where(taken, -state[:, site], state[:, site])
            now = now + torch.where(taken, more, 0.0)
        return now / spins

    return sweep


@case(
    id="generative-encoder-each-sample",
    round=21,
    domain="generative",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True),
    cause="An importance-weighted autoencoder repeats each image 16 times before the encoder, "
    "which computes the same mean and spread 16 times.",
    symptom="addmm of Encoder has 768 rows, where the batch has 48; aten::repeat or expand comes "
    "before it.",
    answer="Images are repeated for 16 samples before Encoder runs, so it encodes each image 16 "
    "times; run Encoder once on the 48 images and draw 16 samples from each mean and spread "
    "(expand behind the encoder).",
    names=("Encoder", "encoder", "repeat", "768"),
    actions=("once", "after the encoder", "behind the encoder", "48 images", "48 rows",
             "expand the mean", "repeat the mean", "after encoding", "before repeat",
             "encode first", "repeat later", "rsample", "expand after", "repeat after", "after it",
             "move the repeat", "broadcast the mean"),
)
def generative_encoder_each_sample(mended):
    images, samples, pixels, width, codes = 48, 16, 784, 384, 32

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, 2 * codes),
            )

        def forward(self, x):
            return self.layers(x).chunk(2, 1)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(codes, width), nn.ReLU(), nn.Linear(width, pixels)
            )

        def forward(self, z):
            return self.layers(z)

    encoder, decoder = Encoder(), Decoder()
    weights = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3, fused=True)
    pictures = torch.rand(images, pixels)

    def train_step():
        optimizer.zero_grad()
        if mended:
            mean, spread = encoder(pictures)
            mean = mean[:, None].expand(-1, samples, -1)
            spread = spread[:, None].expand(-1, samples, -1)
        else:
            repeated = pictures.repeat_interleave(samples, 0)
            mean, spread = (x.view(images, samples, -1) for x in encoder(repeated))
        noise = torch.randn(images, samples, codes)
        z = mean + (spread / 2).exp() * noise
        apart = (decoder(z.flatten(0, 1)).view(images, samples, -1) - pictures[:, None])
        likely = -apart.square().sum(2) / 2
        prior = (noise.square() - z.square() + spread).sum(2) / 2
        loss = -(likely + prior).logsumexp(1).mean() / pixels
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-bootstrap-gathers-rows",
    round=21,
    domain="tabular",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=2),
    cause="A bootstrap of means gathers all drawn rows of 24 columns for 300 replicates, where "
    "the counts of draws and one product would do.",
    symptom="aten::index gives [300, 1500, 24], 43 MB, and aten::mean over its rows follows.",
    answer="intervals copies the drawn rows for each replicate and averages them; a mean needs "
    "how often each row is drawn alone: count the draws (scatter_add or bincount) to "
    "[300, 1500] and multiply by the table of errors (matmul).",
    names=("aten::index", "300, 1500, 24", "intervals", "aten::mean", "bootstrap", "gather"),
    actions=("count", "matmul", "matrix product", "scatter_add", "bincount", "weights",
             "multinomial", "mm", "one product", "how often"),
)
def tabular_bootstrap_gathers_rows(mended):
    rows, columns, outputs, width, replicates = 1500, 40, 24, 96, 300

    class Regressor(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, outputs),
            )

        def forward(self, table):
            return self.layers(table)

    model = Regressor().eval()
    table, wanted = torch.randn(rows, columns), torch.randn(rows, outputs)
    levels, ones = torch.tensor([0.05, 0.95]), torch.ones(1, 1)

    def intervals(errors):
        drawn = torch.randint(rows, (replicates, rows))
        if mended:
            counts = torch.zeros(replicates, rows)
            counts.scatter_add_(1, drawn, ones.expand(replicates, rows))
            means = counts @ errors / rows
        else:
            means = errors[drawn].mean(1)
        return means.quantile(levels, dim=0)

    @torch.inference_mode()
    def evaluate():
        return intervals((model(table) - wanted).square())

    return evaluate


@case(
    id="timeseries-kernel-power-by-power",
    round=21,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="A state space layer makes its kernel of 256 moments by multiplying the state by the "
    "transition matrix 256 times in a row.",
    symptom="aten::bmm of [8, 24, 24] by [8, 24, 1] runs 255 times a step, and its two products in "
    "the backward as often.",
    answer="kernel multiplies a vector by the transition matrix once for each of 256 moments, in a "
    "Python loop; double the known part instead (the next 2^n moments are the power of the matrix "
    "times the first 2^n: eight products), or make the matrix diagonal and take powers at once.",
    names=("kernel", "aten::bmm", "BmmBackward", "8, 24, 1", "transition", "255", "256"),
    actions=("doubl", "squar", "diagonal", "power", "scan", "Vandermonde", "log2", "eigen",
             "at once", "parallel", "batch", "fewer products", "chunk", "associative"),
)
def timeseries_kernel_power_by_power(mended):
    batch, length, inputs, channels, states = 16, 256, 6, 8, 24

    class StateSpace(nn.Module):
        def __init__(self):
            super().__init__()
            self.moves = nn.Parameter(
                0.9 * torch.eye(states) + 0.1 * torch.randn(channels, states, states) / states
            )
            self.enter = nn.Parameter(torch.randn(channels, states, 1))
            self.leave = nn.Parameter(torch.randn(channels, 1, states) / states)

        def kernel(self):
            if mended:
                seen, power = self.enter, self.moves
                while seen.shape[2] < length:
                    seen = torch.cat([seen, power @ seen], 2)
                    power = power @ power
            else:
                seen = [self.enter]
                for _ in range(length - 1):
                    seen.append(self.moves @ seen[-1])
                seen = torch.cat(seen, 2)
            return (self.leave @ seen)[:, 0]

        def forward(self, x):
            spectrum = torch.fft.rfft(self.kernel(), 2 * length)
            return torch.fft.irfft(torch.fft.rfft(x, 2 * length) * spectrum)[..., :length]

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.layer = nn.Linear(inputs, channels), StateSpace()
            self.leave = nn.Sequential(nn.Linear(channels, 64), nn.GELU(), nn.Linear(64, 1))

        def forward(self, series):
            h = self.layer(self.enter(series).transpose(1, 2)).transpose(1, 2)
            return self.leave(h)[:, :, 0]

    model, series = Forecaster(), torch.randn(batch, length, inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    future = torch.randn(batch, length)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-duplicate-ids",
    round=21,
    domain="recommenders",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each rank owns half of the items; a rank asks for the vector of each of 16,000 clicks, "
    "though there are 1,000 items and popular ones come often.",
    symptom="gloo:all_to_all carries some [16000, 96] vectors a step, for a table of 1,000 items.",
    answer="fetch asks the owners for the vector of each click, and the same popular items are "
    "sent again and again; take unique ids first (torch.unique with return_inverse), fetch each "
    "vector once and spread them by the inverse.",
    names=("all_to_all", "alltoall", "fetch", "duplicate", "same items", "same ids"),
    actions=("unique", "dedup", "once each", "each vector once", "each item once", "distinct",
             "return_inverse", "remove duplicate", "drop duplicate", "cache", "each id once",
             "replicate the table"),
)
def distributed_duplicate_ids(mended, rank, world):
    items, width, rows, length = 1000, 96, 400, 40
    share = items // world

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(share, width)
            self.layers = nn.Sequential(
                nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
            )

        def fetch(self, ids):
            owners = ids % world
            order = owners.argsort()
            asked, sent = ids[order], owners.bincount(minlength=world)
            got = torch.empty_like(sent)
            dist.all_to_all_single(got, sent)
            sent, got = sent.tolist(), got.tolist()
            theirs = asked.new_empty(sum(got))
            dist.all_to_all_single(theirs, asked, got, sent)
            vectors = self.table(theirs // world)
            found = vectors.new_empty(len(asked), width)
            dist.all_to_all_single(found, vectors, sent, got)
            return torch.empty_like(found).index_copy_(0, order, found)

        def forward(self, clicks):
            if mended:
                ids, back = clicks.flatten().unique(return_inverse=True)
                pooled = F.embedding_bag(back.view_as(clicks), self.fetch(ids), mode="mean")
            else:
                pooled = self.fetch(clicks.flatten()).view(rows, length, width).mean(1)
            return self.layers(pooled)

    model = Ranker().eval()
    clicks = (torch.rand(world, rows, length).pow(3) * items).long()[rank]

    @torch.inference_mode()
    def rank_items():
        return model(clicks).sigmoid()

    return rank_items
