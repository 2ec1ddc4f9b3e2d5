# SPDX-License-Identifier: Apache-2.0
"""Round 15: work that is done again, though its result is there, or is known beforehand."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-dropout-passes",
    round=15,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, schedule=False),
    cause="Monte-Carlo dropout runs the whole network twelve times, and dropout is in its head alone.",
    symptom="Twelve calls of the network with the same images; the convolutions of trunk lead, the head is short.",
    answer="trunk has no dropout and the images do not change, so its twelve passes give the same features; run trunk "
    "once and the head twelve times (or once, with the features repeated).",
    names=("trunk", "convolution", "conv2d", "twelve", "12 times", "Trunk", "same input", "same images"),
    actions=("trunk once", "features once", "once and", "run it once", "compute it once", "computed once", "head alone",
             "only the head", "head twelve", "keep the result", "keep its result", "reuse", "cache", "hoist",
             "out of the loop", "before the loop"),
)
def vision_dropout_passes(mended):
    passes = 12

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(),
                nn.AdaptiveAvgPool2d(4), nn.Flatten(),
            )
            self.head = nn.Sequential(
                nn.Dropout(0.3), nn.Linear(768, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10),
            )

        def forward(self, images):
            return self.head(self.trunk(images))

    model, images = Network().eval(), torch.randn(8, 3, 64, 64)
    model.head.train()  # dropout stays on: its spread is the uncertainty

    @torch.inference_mode()
    def predict():
        if mended:
            features = model.trunk(images)
            chances = torch.stack([model.head(features).softmax(1) for _ in range(passes)])
        else:
            chances = torch.stack([model(images).softmax(1) for _ in range(passes)])
        return chances.std(0)

    return predict


@case(
    id="language-softmax-again",
    round=15,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A policy's loss takes five softmaxes of the same logits over 6,000 words: each of its terms its own.",
    symptom="aten::_log_softmax, aten::_softmax and their backward ops of [8, 48, 6000] run several times a step.",
    answer="chosen, entropy and divergence each call log_softmax or softmax on the same [8, 48, 6000] logits; compute "
    "log_softmax once, share it, and take exp of it where probabilities are needed.",
    names=("log_softmax", "softmax", "entropy", "divergence", "_log_softmax_backward_data"),
    actions=("once", "share", "reuse", "one log_softmax", "one softmax", "keep the result", "pass the log",
             "same logits", "same input", "exp of"),
)
def language_softmax_again(mended):
    width, heads, words, length, rows = 64, 4, 6000, 48, 8

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = Block()
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.norm(self.blocks(self.table(ids))))

    def chosen(logits, taken):
        return logits.log_softmax(-1).gather(2, taken[:, :, None])[:, :, 0]

    def entropy(logits):
        return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)

    def divergence(logits, reference):
        return (logits.softmax(-1) * (logits.log_softmax(-1) - reference)).sum(-1)

    def terms(logits, taken, reference):
        if not mended:
            return chosen(logits, taken), entropy(logits), divergence(logits, reference)
        logs = logits.log_softmax(-1)
        certain = (logs.exp() * logs).sum(-1)
        return (
            logs.gather(2, taken[:, :, None])[:, :, 0], -certain,
            certain - (logs.exp() * reference).sum(-1),
        )

    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids, taken = torch.randint(words, (2, rows, length))
    before, gains = torch.full((rows, length), -8.7), torch.randn(rows, length)
    reference = torch.randn(rows, length, words).log_softmax(-1)  # of the model at the start

    def train_step():
        optimizer.zero_grad()
        logs, spread, far = terms(model(ids), taken, reference)
        loss = (0.1 * far - (logs - before).exp() * gains - 0.01 * spread).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-sound-requires-grad",
    round=15,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    cause="The sounds have requires_grad=True from an experiment with attacks: backward goes through the spectrogram.",
    symptom="Backward ops of stft (FftR2CBackward, irfft-like transforms, as_strided) and of the mel product run, "
    "though the features have no weights.",
    answer="The batch of sounds requires a gradient, so backward goes on through the log, the mel product, the power "
    "and the stft; nobody reads that gradient: requires_grad_(False), or compute the features under no_grad.",
    names=("FftR2CBackward", "stft", "requires_grad", "UnfoldBackward", "Features", "features", "AsStridedBackward",
           "_fft_c2r", "_fft_c2c", "LogBackward", "unfold_backward", "as_strided_backward"),
    actions=("requires_grad_(False)", "requires_grad=False", "no_grad", "detach", "not require", "without grad",
             "requires_grad"),
)
def audio_sound_requires_grad(mended):
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(512))
            self.register_buffer("mel", torch.rand(64, 257) / 257)

        def forward(self, sound):
            spectrum = torch.stft(sound, 512, 128, window=self.window, return_complex=True)
            return (self.mel @ (spectrum.real.square() + spectrum.imag.square()) + 1e-6).log()

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = Features()
            self.layers = nn.Sequential(
                nn.Conv1d(64, 64, 5, 2, 2), nn.ReLU(), nn.Conv1d(64, 96, 5, 2, 2), nn.ReLU(),
                nn.Conv1d(96, 96, 5, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 12),
            )

        def forward(self, sound):
            return self.layers(self.features(sound))

    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    sounds, labels = torch.randn(24, 24_000), torch.randint(12, (24,))

    def train_step():
        batch = sounds.clone().requires_grad_(not mended)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-transform-each-step",
    round=15,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Laplacian encodings of the graphs are a transform of the data set: eigh of each graph runs in each step.",
    symptom="aten::linalg_eigh runs once for each of 32 graphs a step, in encode, and takes longer than the network.",
    answer="encode builds the Laplacian of each graph and takes its eigenvectors (linalg_eigh) in each step although "
    "the graphs do not change; compute the encodings once when the data are prepared (pre_transform) and keep them.",
    names=("eigh", "encode", "linalg_eigh", "Laplacian", "laplacian", "eigenvectors"),
    actions=("once", "pre_transform", "beforehand", "in advance", "when the data", "precompute", "prepare", "keep them",
             "store", "cache", "outside the step", "out of the step", "ahead", "data loader"),
)
def graph_transform_each_step(mended):
    count, nodes, width, waves = 32, 48, 64, 8

    def encode(ends):
        links = torch.zeros(nodes, nodes)
        links[ends[0], ends[1]] = 1.0
        links[ends[1], ends[0]] = 1.0
        scale = links.sum(1).clamp(min=1).rsqrt()
        laplacian = torch.eye(nodes) - scale[:, None] * links * scale
        return torch.linalg.eigh(laplacian)[1][:, 1 : waves + 1].abs()

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, h, source, target):
            spread = torch.zeros_like(h).index_add(0, target, self.other(h).index_select(0, source))
            return F.relu(self.own(h) + spread / 4)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(16 + waves, width)
            self.layers = nn.ModuleList([Layer() for _ in range(3)])
            self.leave = nn.Linear(width, 1)

        def forward(self, h, source, target):
            h = self.enter(h)
            for layer in self.layers:
                h = layer(h, source, target)
            return self.leave(h.view(count, nodes, width).mean(1))[:, 0]

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    graphs = [torch.randint(nodes, (2, 90)) for _ in range(count)]
    both = [torch.cat([ends, ends.flip(0)], 1) + nodes * place for place, ends in enumerate(graphs)]
    source, target = torch.cat(both, 1)
    x, wanted = torch.randn(count * nodes, 16), torch.randn(count)
    ready = torch.cat([encode(ends) for ends in graphs])

    def train_step():
        places = ready if mended else torch.cat([encode(ends) for ends in graphs])
        optimizer.zero_grad()
        loss = F.mse_loss(model(torch.cat([x, places], 1), source, target), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-softmax-before-topk",
    round=15,
    domain="recommenders",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Scores of 50,000 items are divided by a temperature and made probabilities before topk, which needs "
    "neither.",
    symptom="aten::div and aten::_softmax of [64, 50000] before aten::topk, of which only the indices are returned.",
    answer="Softmax and the division by a temperature keep the order, and only the indices of topk are returned; take "
    "topk of the raw scores, and softmax of the 20 that stay if chances are wanted.",
    names=("softmax", "_softmax", "aten::div", "temperature"),
    actions=("raw scores", "of the scores", "keep the order", "keeps the order", "same order", "order", "monoton",
             "after topk", "topk first", "drop the softmax", "without softmax", "leave out", "not needed",
             "of the 20", "of the logits"),
)
def recommender_softmax_before_topk(mended):
    items, width, users, length = 50_000, 32, 64, 30

    class Retrieval(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(items, width)
            self.recur = nn.GRU(width, 64, batch_first=True)
            self.leave = nn.Linear(64, width)

        def forward(self, history):
            return self.leave(self.recur(self.table(history))[1][0]) @ self.table.weight.T

    def recommend(scores, temperature=0.7):
        if mended:
            return scores.topk(20).indices
        chances = (scores / temperature).softmax(1)
        return chances.topk(20).indices

    model, history = Retrieval().eval(), torch.randint(items, (users, length))

    @torch.inference_mode()
    def answer_request():
        return recommend(model(history))

    return answer_request


@case(
    id="science-pairs-twice",
    round=15,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=3),
    cause="A learned pair energy, which is the same for (i, j) and (j, i), is computed for both and halved.",
    symptom="Ops of [39800, 16] and [39800, 48] in PairEnergy lead; 39,800 is 200 times 199, and the sum is halved.",
    answer="PairEnergy runs on all 39,800 ordered pairs of 200 atoms, forward and backward, though the distance and so "
    "the energy are symmetric; compute the 19,900 pairs with i < j (triu_indices) and drop the factor of a half.",
    names=("PairEnergy", "pairs", "39800", "39,800", "both orders", "symmetric"),
    actions=("i < j", "triu", "half of the pairs", "half the pairs", "each pair once", "pairs once", "symmetr",
             "19,900", "19900", "upper triangle", "one order", "cutoff", "neighbour list"),
)
def science_pairs_twice(mended):
    atoms, waves = 200, 16

    class PairEnergy(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("centres", torch.linspace(0.5, 6, waves))
            self.layers = nn.Sequential(
                nn.Linear(waves, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1),
            )

        def forward(self, places, source, target):
            far = (places.index_select(0, source) - places.index_select(0, target)).square().sum(1).sqrt()
            basis = (-(far[:, None] - self.centres).square()).exp()
            return self.layers(basis).sum()

    model = PairEnergy().requires_grad_(False)
    if mended:
        source, target = torch.triu_indices(atoms, atoms, 1)
    else:
        source, target = (~torch.eye(atoms, dtype=torch.bool)).nonzero().T.contiguous()
    places = 4 * torch.rand(atoms, 3)

    def forces():
        at = places.clone().requires_grad_()
        energy = model(at, source, target)
        if not mended:
            energy = energy / 2
        (slope,) = torch.autograd.grad(energy, at)
        return (slope.square().sum() + energy).detach() / atoms**2

    return forces


@case(
    id="generative-modulated-weights",
    round=15,
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=3),
    cause="A style generator makes modulated 3 x 3 weights for each image and runs them as a grouped convolution.",
    symptom="aten::mul and aten::sum over [16, 96, 96, 3, 3] and a convolution of 16 groups on [1, 1536, 8, 8] lead.",
    answer="Modulated makes a weight of [96, 96, 3, 3] for each of 16 images (mul, square, sum, reshape) and convolves "
    "in groups; scale the input's channels by the style, convolve once with the shared weight, and scale the output.",
    names=("Modulated", "modulat", "[16, 96, 96, 3, 3]", "16, 96, 96, 3, 3", "grouped", "groups", "aten::mul",
           "weight for each", "aten::square", "aten::pow"),
    actions=("scale the input", "scale the activations", "scale the channels", "shared weight", "input's channels",
             "one convolution", "convolve once", "instead of the weight", "not the weight", "multiply the input",
             "scale the output"),
)
def generative_modulated_weights(mended):
    images, width, code = 16, 96, 128

    class Modulated(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(width, width, 3, 3) / (9 * width) ** 0.5)
            self.style = nn.Linear(code, width)
            self.register_buffer("energy", self.weight.detach().square().sum((2, 3)))

        def forward(self, x, codes):
            style = self.style(codes) + 1
            if mended:
                x = F.conv2d(x * style[:, :, None, None], self.weight, padding=1)
                return x * (style.square() @ self.energy.T + 1e-8).rsqrt()[:, :, None, None]
            weights = self.weight * style[:, None, :, None, None]
            weights = weights * (weights.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
            height, breadth = x.shape[2:]
            x = x.reshape(1, images * width, height, breadth)
            x = F.conv2d(x, weights.reshape(images * width, width, 3, 3), padding=1, groups=images)
            return x.view(images, width, height, breadth)

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.mapping = nn.Sequential(nn.Linear(code, code), nn.ReLU(), nn.Linear(code, code), nn.ReLU())
            self.start = nn.Parameter(torch.randn(width, 4, 4))
            self.layers = nn.ModuleList([Modulated() for _ in range(4)])
            self.leave = nn.Conv2d(width, 3, 1)

        def forward(self, z):
            codes, x = self.mapping(z), self.start.expand(images, -1, -1, -1)
            for place, layer in enumerate(self.layers):
                x = F.leaky_relu(layer(x, codes), 0.2)
                if place % 2 == 0 and place < 2:
                    x = F.interpolate(x, scale_factor=2.0)
            return self.leave(x)

    model, z = Generator().eval(), torch.randn(images, code)

    @torch.inference_mode()
    def generate():
        return model(z).square()

    return generate


@case(
    id="timeseries-chomp",
    round=15,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="Causal convolutions pad both sides by (kernel - 1) times dilation, and Chomp cuts the end off again.",
    symptom="Convolutions make up to 64 + 192 time steps, of which a slice keeps 64; clones follow each.",
    answer="Conv1d pads both sides and Chomp drops the last (kernel - 1) * dilation steps, up to three quarters of "
    "what the convolution computed; pad the left side alone (F.pad) and convolve without padding.",
    names=("Chomp", "chomp", "convolution", "conv1d", "Conv1d", "aten::slice", "drops", "cut off"),
    actions=("left side", "on the left", "pad left", "one side", "F.pad", "left alone", "padding=0", "without padding",
             "only what is read", "only the part", "not computed", "before the convolution"),
)
def timeseries_chomp(mended):
    width, length, kernel = 48, 64, 7

    class Chomp(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.count = count

        def forward(self, x):
            return x[:, :, : -self.count].contiguous()

    class Block(nn.Module):
        def __init__(self, inputs, dilation):
            super().__init__()
            pad = (kernel - 1) * dilation
            layers = []
            for channels in (inputs, width):
                if mended:
                    layers += [nn.ConstantPad1d((pad, 0), 0.0), nn.Conv1d(channels, width, kernel, dilation=dilation)]
                else:
                    layers += [nn.Conv1d(channels, width, kernel, 1, pad, dilation), Chomp(pad)]
                layers.append(nn.ReLU())
            self.layers = nn.Sequential(*layers)
            self.across = nn.Conv1d(inputs, width, 1) if inputs != width else nn.Identity()

        def forward(self, x):
            return self.layers(x) + self.across(x)

    model = nn.Sequential(
        Block(8, 1), *[Block(width, dilation) for dilation in (2, 4, 8, 16, 32)], nn.Conv1d(width, 8, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series = torch.randn(16, 8, length + 1)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series[:, :, :-1]), series[:, :, 1:])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-leaf-products",
    round=15,
    domain="tabular",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=3),
    cause="Soft decision trees gather the six gates of each of 64 leaves and multiply them: paths share their gates.",
    symptom="aten::index, aten::where, aten::prod and their backward ops over [256, 16, 64, 6] lead, in leaves.",
    answer="leaves gathers [256, 16, 64, 6] gates and takes prod over each leaf's path, with an index_put backward; go "
    "down level by level (each level doubles the products of the one above), or sum log-sigmoids with a matrix.",
    names=("leaves", "aten::prod", "prod", "[256, 16, 64, 6]", "256, 16, 64, 6", "index_put", "aten::index",
           "aten::where"),
    actions=("level by level", "level", "double", "reuse the products", "share", "prefix", "cumprod", "logsigmoid",
             "log-sigmoid", "logarithm", "a matrix", "each gate once", "outer product", "stack"),
)
def tabular_leaf_products(mended):
    rows, trees, depth, width = 256, 16, 6, 128
    count = 2**depth
    leaf, level = torch.arange(count)[:, None], torch.arange(depth)
    nodes = (2**level - 1) + (leaf >> (depth - level))
    right = (leaf >> (depth - 1 - level)) & 1 == 1

    class Forest(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            self.gates = nn.Linear(width, trees * (count - 1))
            self.values = nn.Parameter(torch.randn(trees, count) / 10)

        def leaves(self, gates):
            if not mended:
                on_path = gates[:, :, nodes]
                return torch.where(right, on_path, 1 - on_path).prod(3)
            chances = gates.new_ones(rows, trees, 1)
            for deep in range(depth):
                gate = gates[:, :, 2**deep - 1 : 2 ** (deep + 1) - 1]
                chances = torch.stack([chances * (1 - gate), chances * gate], 3).flatten(2)
            return chances

        def forward(self, x):
            gates = self.gates(self.enter(x)).sigmoid().view(rows, trees, count - 1)
            return (self.leaves(gates) * self.values).sum((1, 2))

    model = Forest()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, wanted = torch.randn(rows, 40), torch.randn(rows)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-parameter-server",
    round=15,
    domain="recommenders",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Rank 0 is a parameter server that only updates weights; rank 1 alone computes the gradients of all rows.",
    symptom="Rank 0 waits in gloo:recv while rank 1 runs forward and backward; then rank 1 waits for gloo:broadcast.",
    answer="Rank 0 computes no gradients: it waits in recv, runs Adam and broadcasts weights, for which rank 1 waits; "
    "let both ranks compute half of the rows and all_reduce the gradients (as DDP does), and update on each.",
    names=("gloo:recv", "gloo:broadcast", "recv", "broadcast", "serve", "rank 1 waits", "rank 0 waits", "idle"),
    actions=("all_reduce", "allreduce", "DDP", "DistributedDataParallel", "each rank update", "on each rank",
             "half of the rows", "share the rows", "both ranks compute", "both ranks work", "split the batch",
             "split the rows", "balance"),
)
def distributed_parameter_server(mended, rank, world):
    width, fields, rows = 640, 24, 2048

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(3000, 16)
            self.layers = nn.Sequential(
                nn.Linear(fields * 16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
            )

        def forward(self, ids):
            return self.layers(self.table(ids).flatten(1))[:, 0]

    model = Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    ids, clicked = torch.randint(3000, (rows, fields)), torch.rand(rows).round()
    if mended:
        ids, clicked = ids.chunk(world)[rank], clicked.chunk(world)[rank]
    flat = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    gradients, end = torch.zeros_like(flat), 0
    for weight in model.parameters():  # weights and gradients are views of one tensor each
        begin, end = end, end + weight.numel()
        weight.data = flat[begin:end].view_as(weight)
        weight.grad = gradients[begin:end].view_as(weight)

    def compute():
        gradients.zero_()
        F.binary_cross_entropy_with_logits(model(ids), clicked).backward()

    def serve():
        if rank == 0:
            dist.recv(gradients, 1)
            optimizer.step()
        else:
            compute()
            dist.send(gradients, 0)
        dist.broadcast(flat, 0)

    def train_step():
        if mended:
            compute()
            dist.all_reduce(gradients)
            gradients.div_(world)
            optimizer.step()
        else:
            serve()
        return flat.square().mean()

    return train_step
