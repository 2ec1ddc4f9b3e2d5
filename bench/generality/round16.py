# SPDX-License-Identifier: Apache-2.0
"""Round 16: the wrong tool: a long way where a short one gives the same, or more exactness than anybody reads."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-sliding-windows",
    round=16,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=3),
    cause="A scanner cuts an image into 289 overlapping windows and runs its convolutional network on each.",
    symptom="Convolutions on [289, 3, 32, 32] from one image of [1, 3, 160, 160]: twelve times its pixels.",
    answer="scan cuts windows of 32 pixels every 8, so each pixel is convolved up to sixteen times; the network is "
    "fully convolutional: run it once on the whole image and take every second place of its map of scores.",
    names=("scan", "windows", "overlap", "289", "unfold", "convolution", "conv2d"),
    actions=("whole image", "on the image", "fully convolutional", "convolve the image", "once", "larger stride",
             "fewer windows", "less overlap", "without overlap", "image as a whole", "not in windows"),
)
def vision_sliding_windows(mended):
    window, stride, size = 32, 8, 160

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 48, 3, 2), nn.ReLU(),
                nn.Conv2d(48, 64, 6), nn.ReLU(), nn.Conv2d(64, 1, 1),
            )

        def forward(self, images):
            return self.layers(images)

    def scan(model, image):
        if mended:  # the network moves by four pixels, the windows by eight
            return model(image)[0, 0, ::2, ::2].sigmoid()
        windows = image.unfold(2, window, stride).unfold(3, window, stride)
        rows, columns = windows.shape[2:4]
        windows = windows.permute(0, 2, 3, 1, 4, 5).reshape(rows * columns, 3, window, window)
        return model(windows).view(rows, columns).sigmoid()

    model, image = Scorer().eval(), torch.randn(1, 3, size, size)

    @torch.inference_mode()
    def detect():
        return scan(model, image)

    return detect


@case(
    id="language-dequantise-each",
    round=16,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="Weights are kept in int8, and each layer makes its float weight anew for each generated token.",
    symptom="aten::_to_copy (copy_) and aten::mul of [1152, 384] and [1536, 384] weights take longer than the "
    "products.",
    answer="Int8Linear converts its whole int8 weight to float and multiplies it by the scales for each token; "
    "dequantise once at load, scale the output and not the weight, or use an int8 kernel.",
    names=("Int8Linear", "aten::_to_copy", "_to_copy", "aten::to", "copy_", "int8", "char", "aten::mul", "dequant"),
    actions=("once", "at load", "when it is loaded", "keep the float", "keep in float", "scale the output",
             "scale the result", "int8 kernel", "quantize_dynamic", "dynamic quantization", "_weight_int8pack_mm",
             "cache", "store", "beforehand", "out of the loop", "hoist", "in advance"),
)
def language_dequantise_each(mended):
    width, heads, depth, words, prompt, tokens = 384, 6, 3, 500, 24, 8

    class Int8Linear(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            weight = torch.randn(outputs, inputs) / inputs**0.5
            scale = weight.abs().amax(1, keepdim=True) / 127
            self.register_buffer("scale", scale)
            self.register_buffer("weight", (weight / scale).round().to(torch.int8))
            self.ready = self.dequantised() if mended else None

        def dequantised(self):
            return self.weight.float() * self.scale

        def forward(self, x):
            return F.linear(x, self.ready if mended else self.dequantised())

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = Int8Linear(width, 3 * width), Int8Linear(width, width)
            self.up, self.down = Int8Linear(width, 4 * width), Int8Linear(4 * width, width)

        def forward(self, x, keys, values, past):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            end = past + x.shape[1]
            keys[:, :, past:end], values[:, :, past:end] = k, v
            mixed = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], is_causal=past == 0)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.ModuleList([Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), Int8Linear(width, words)

        def forward(self, ids, caches, past):
            x = self.table(ids)
            for block, (keys, values) in zip(self.blocks, caches):
                x = block(x, keys, values, past)
            return self.head(self.norm(x[:, -1:]))[:, -1]

    model, ids = Writer().eval(), torch.randint(words, (1, prompt))
    caches = [torch.empty(2, 1, heads, prompt + tokens, width // heads) for _ in range(depth)]

    @torch.inference_mode()
    def generate():
        scores = model(ids, caches, 0)
        for past in range(prompt, prompt + tokens - 1):
            scores = model(scores.argmax(1, keepdim=True), caches, past)
        return scores.square()

    return generate


@case(
    id="audio-transform-per-filter",
    round=16,
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A bank of 40 filters calls an FFT convolution for each, which transforms the same sound 40 times.",
    symptom="aten::fft_rfft (_fft_r2c) of the padded sound runs 40 times a step, and so does that of each filter.",
    answer="fftconvolve runs for each of 40 filters and takes rfft of the same sound in each call, and of the filter; "
    "take rfft of the sound once, keep the spectra of the filters, and multiply them.",
    names=("fftconvolve", "fft_rfft", "_fft_r2c", "rfft", "FFT"),
    actions=("once", "keep the spectr", "spectrum once", "spectra of the filters", "precompute", "reuse", "cache",
             "out of the loop", "hoist", "before the loop", "batch", "all filters", "at once", "share"),
)
def audio_transform_per_filter(mended):
    filters, taps, samples, size = 40, 2048, 16_000, 18_432

    def fftconvolve(sound, kernel):
        both = torch.fft.rfft(sound, size) * torch.fft.rfft(kernel, size)
        return torch.fft.irfft(both, size)[..., :samples]

    class Bank(nn.Module):
        def __init__(self):
            super().__init__()
            time = torch.arange(taps) / 16_000
            pitch = torch.logspace(2, 3.7, filters)[:, None]
            self.register_buffer("kernels", (-40 * time).exp() * (6.2832 * pitch * time).cos() / 20)
            self.register_buffer("spectra", torch.fft.rfft(self.kernels, size))

        def forward(self, sound):
            if mended:
                spectrum = torch.fft.rfft(sound, size)
                bands = [torch.fft.irfft(spectrum * other, size)[..., :samples] for other in self.spectra]
            else:
                bands = [fftconvolve(sound, kernel) for kernel in self.kernels]
            return torch.stack([F.avg_pool1d(band.abs(), 160) for band in bands], 1)

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.bank = Bank()
            self.layers = nn.Sequential(
                nn.Conv1d(filters, 96, 5, padding=2), nn.ReLU(), nn.Conv1d(96, 96, 5, padding=2), nn.ReLU(),
                nn.Conv1d(96, 10, 1),
            )

        def forward(self, sound):
            return self.layers((self.bank(sound) + 1e-4).log())

    model, sound = Detector().eval(), torch.randn(4, samples)

    @torch.inference_mode()
    def listen():
        return model(sound).amax(2)

    return listen


@case(
    id="graph-all-nodes-for-few",
    round=16,
    domain="graphs",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A service classifies 24 accounts, and the graph network computes all 6,000 of them for it.",
    symptom="Ops of [36000, 64] and [6000, 64] lead both layers; then index_select keeps 24 rows.",
    answer="Both layers run on all 6,000 nodes and 36,000 edges, and 24 rows are read; compute the two-hop "
    "neighbourhood of these nodes alone (k_hop_subgraph, a neighbour sampler), or keep the embeddings of all nodes "
    "between requests.",
    names=("[36000, 64]", "36000", "36,000", "6000", "6,000", "index_select", "index_add", "all nodes", "24 rows",
           "rows"),
    actions=("neighbourhood", "neighborhood", "subgraph", "two-hop", "2-hop", "k_hop", "neighbour", "neighbor",
             "only the rows", "only those", "rows that are read", "which are read", "select first", "select before",
             "keep the embeddings", "cache", "only the nodes", "before the"),
)
def graph_all_nodes_for_few(mended):
    nodes, edges, width, asked = 6000, 36_000, 64, 24

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, own, others, rows):
            spread = torch.zeros_like(own).index_add(0, rows, others)
            return F.relu(self.own(own) + self.other(spread / 6))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(), Layer()])
            self.leave = nn.Linear(width, 5)

        def forward(self, wanted):
            if mended:
                return self.leave(self.embed(wanted, 2))
            h = features
            for layer in self.layers:
                h = layer(h, h.index_select(0, source), target)
            return self.leave(h).index_select(0, wanted)

        def embed(self, wanted, depth):
            if not depth:
                return features.index_select(0, wanted)
            rows, others = incoming(wanted)
            needed, places = torch.cat([wanted, others]).unique(return_inverse=True)
            h = self.embed(needed, depth - 1).index_select(0, places)
            return self.layers[depth - 1](h[: len(wanted)], h[len(wanted) :], rows)

    def incoming(wanted):
        counts = degrees[wanted]
        rows = torch.arange(len(wanted)).repeat_interleave(counts)
        places = torch.arange(len(rows)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        return rows, source[starts[wanted].repeat_interleave(counts) + places]

    model, features = Network().eval(), torch.randn(nodes, width)
    source, target = torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)).sort().values
    degrees = target.bincount(minlength=nodes)
    starts = degrees.cumsum(0) - degrees
    wanted = torch.randint(nodes, (asked,))

    @torch.inference_mode()
    def classify():
        return model(wanted).softmax(1).square()

    return classify


@case(
    id="recommender-multinomial-each-step",
    round=16,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Negatives are drawn by popularity with torch.multinomial, which sums the weights of 500,000 items each "
    "step.",
    symptom="aten::pow and aten::multinomial of [500000] lead; 4,096 items are drawn.",
    answer="draw takes counts to the power 0.75 and calls multinomial over all 500,000 items in each step, which "
    "builds the cumulative distribution anew; keep the cumulative sum and search 4,096 random numbers in it "
    "(searchsorted).",
    names=("multinomial", "draw", "aten::pow", "500000", "500,000"),
    actions=("cumulative", "cumsum", "searchsorted", "alias", "once", "many steps", "several steps", "in advance",
             "precompute", "beforehand", "draw more", "outside the step", "out of the step", "a large pool"),
    same_result=False,  # other negatives are drawn
)
def recommender_multinomial_each_step(mended):
    items, width, batch, negatives = 500_000, 32, 256, 16

    class SkipGram(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Embedding(items, width, sparse=True)
            self.second = nn.Embedding(items, width, sparse=True)

        def forward(self, seen, bought, others):
            seen = self.first(seen)[:, None]
            right = (seen * self.second(bought)[:, None]).sum(2)
            wrong = (seen * self.second(others)).sum(2)
            return -(F.logsigmoid(right).mean() + F.logsigmoid(-wrong).mean())

    model = SkipGram()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    counts = torch.randint(1, 4000, (items,)).float()
    sums = counts.pow(0.75).cumsum(0, dtype=torch.float64)
    seen, bought = torch.randint(items, (2, batch))

    def draw():
        if mended:
            drawn = torch.searchsorted(sums, torch.rand(batch * negatives, dtype=torch.float64) * sums[-1])
            drawn.clamp_(max=items - 1)
        else:
            drawn = torch.multinomial(counts.pow(0.75), batch * negatives, replacement=True)
        return drawn.view(batch, negatives)

    def train_step():
        optimizer.zero_grad()
        loss = model(seen, bought, draw())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-factorised-again",
    round=16,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="A Gaussian process calls solve, inv and logdet on the same matrix: each factorises it anew, as a general "
    "one.",
    symptom="aten::linalg_solve_ex, aten::linalg_inv_ex and _linalg_slogdet of [320, 320] for each of four candidates.",
    answer="evidence factorises the same symmetric positive definite matrix three times (solve, inv, logdet, each with "
    "LU); take one Cholesky factor and use it for the solution, the inverse and the determinant.",
    names=("linalg_solve", "linalg_inv", "slogdet", "logdet", "evidence", "lu_factor", "linalg_det", "_linalg_"),
    actions=("Cholesky", "cholesky", "factorise once", "one factor", "factor once", "same factor", "reuse", "share",
             "lu_factor once", "lu_solve", "keep the factor"),
)
def science_factorised_again(mended):
    points, candidates = 320, (0.5, 0.8, 1.2, 1.8)

    class Kernel(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3))

        def forward(self, x, scale):
            places = self.layers(x) / scale
            far = torch.cdist(places, places)
            return (-0.5 * far.square()).exp() + 0.2 * torch.eye(points)

    def evidence(matrix, y):
        if mended:
            factor = torch.linalg.cholesky(matrix)
            inverse = torch.cholesky_inverse(factor)
            weights, volume = inverse @ y, 2 * factor.diagonal().log().sum()
        else:
            weights = torch.linalg.solve(matrix, y)
            inverse = torch.linalg.inv(matrix)
            volume = torch.logdet(matrix)
        left_out = (weights / inverse.diagonal()).square().mean()
        return 0.5 * (y @ weights + volume) / points, left_out

    model = Kernel().eval()
    x, y = torch.randn(points, 6), torch.randn(points)

    @torch.inference_mode()
    def choose():
        return torch.stack([torch.stack(evidence(model(x, scale), y)) for scale in candidates])

    return choose


@case(
    id="generative-noise-step-by-step",
    round=16,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=3),
    cause="A diffusion model's training adds noise step by step, up to 80 times, where one formula gives the same.",
    symptom="aten::normal_ (randn_like), mul and where of [16, 3, 32, 32] run some 80 times a step, in add_noise.",
    answer="add_noise goes through all steps of the noise schedule in a Python loop with a randn_like each; the sum of "
    "normal numbers is normal: one draw with the cumulative product of alphas gives the same distribution.",
    names=("add_noise", "randn_like", "normal_", "aten::randn_like", "noise"),
    actions=("closed form", "one draw", "cumulative product", "cumprod", "at once", "directly", "single draw",
             "one step", "one formula", "alphas_cumprod", "alpha_bar", "without the loop", "one call"),
    same_result=False,  # other noise of the same distribution
)
def generative_noise_step_by_step(mended):
    steps, images = 80, 16
    betas = torch.linspace(1e-3, 0.05, steps)
    kept = (1 - betas).cumprod(0)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 3, 3, padding=1)
            self.time = nn.Embedding(steps, 48)
            self.down, self.mid = nn.Conv2d(24, 48, 3, 2, 1), nn.Conv2d(48, 48, 3, padding=1)
            self.up = nn.ConvTranspose2d(48, 24, 4, 2, 1)

        def forward(self, x, when):
            first = F.silu(self.enter(x))
            x = F.silu(self.down(first) + self.time(when)[:, :, None, None])
            return self.leave(F.silu(self.up(F.silu(self.mid(x)))) + first)

    def add_noise(clean, when):
        if mended:
            rest = kept[when][:, None, None, None]
            return rest.sqrt() * clean + (1 - rest).sqrt() * torch.randn_like(clean)
        noisy = clean
        for step in range(int(when.max()) + 1):
            further = (1 - betas[step]).sqrt() * noisy + betas[step].sqrt() * torch.randn_like(noisy)
            noisy = torch.where((when >= step)[:, None, None, None], further, noisy)
        return noisy

    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    clean = torch.rand(images, 3, 32, 32) * 2 - 1

    def train_step():
        when = torch.randint(steps, (images,))
        noisy = add_noise(clean, when)
        optimizer.zero_grad()
        loss = F.mse_loss(model(noisy, when), clean)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-validate-each-step",
    round=16,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="The whole validation set is predicted after each training step, to draw a smooth curve.",
    symptom="validate runs the model without gradients on 10 batches a step and takes longer than forward and "
    "backward.",
    answer="validate predicts all 640 windows of the validation set after each step of 64; call it once an epoch or "
    "every few hundred steps.",
    names=("validate", "validation", "evaluation"),
    actions=("once an epoch", "once per epoch", "per epoch", "an epoch", "less often", "every n", "every few", "rarely",
             "not in each step", "end of the epoch", "in intervals", "every hundred", "part of the validation",
             "fewer windows", "out of the step", "outside the step"),
)
def timeseries_validate_each_step(mended):
    width, length, horizon, batch = 320, 96, 12, 64

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(F.relu(self.up(self.norm(x))))

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(6 * length, width), nn.Linear(width, horizon)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])

        def forward(self, series):
            return self.leave(self.blocks(self.enter(series.flatten(1))))

    model, steps, curve = Forecaster(), [0], []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(batch, length, 6), torch.randn(batch, horizon)
    held, held_future = torch.randn(10 * batch, length, 6), torch.randn(10 * batch, horizon)

    @torch.no_grad()
    def validate():
        model.eval()
        losses = [
            F.l1_loss(model(part), wanted) for part, wanted in zip(held.split(batch), held_future.split(batch))
        ]
        model.train()
        return torch.stack(losses).mean().item()

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        steps[0] += 1
        if not mended or steps[0] % 500 == 0:
            curve.append(validate())
        return loss

    return train_step


@case(
    id="tabular-cdist-exact",
    round=16,
    domain="tabular",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Distances to 4,000 stored rows are computed by cdist without a matrix product, for digits nobody needs.",
    symptom="aten::_cdist_forward of [384, 64] and [4000, 64] takes most of the step, and no mm runs in it.",
    answer='neighbours calls cdist with compute_mode="donot_use_mm_for_euclid_dist", which subtracts each pair; the '
    "default takes a matrix product (|a|^2 + |b|^2 - 2 a b), which is exact enough to rank neighbours.",
    names=("cdist", "_cdist_forward", "neighbours"),
    actions=("use_mm", "compute_mode", "matrix product", "default", "aten::mm", "matmul", "a b^T", "product", "addmm",
             "gemm", "GEMM"),
)
def tabular_cdist_exact(mended):
    rows, stored, width = 384, 4000, 64
    how = "use_mm_for_euclid_dist" if mended else "donot_use_mm_for_euclid_dist"

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, width),
            )

        def forward(self, x):
            return self.layers(x)

    def neighbours(codes):
        near = torch.cdist(codes, known, compute_mode=how).topk(16, largest=False)
        shares = (-near.values).softmax(1)
        return (shares * labels[near.indices]).sum(1)

    model, x = Encoder().eval(), torch.randn(rows, 30)
    labels = torch.randn(stored)
    with torch.inference_mode():
        known = model(torch.randn(stored, 30))

    @torch.inference_mode()
    def predict():
        return neighbours(model(x)).square()

    return predict


@case(
    id="distributed-double-gradients",
    round=16,
    domain="vision",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Gradients are made float64 before they are summed over two ranks, and float32 again after it.",
    symptom="gloo:all_reduce of 3 million doubles, with aten::_to_copy on both sides of it.",
    answer="average converts the gradients to double, so all_reduce moves twice the bytes, and back; sum them in "
    "float32 (a mean of two ranks loses nothing), or in bfloat16 if the line is slow.",
    names=("gloo:all_reduce", "all_reduce", "double", "float64", "average", "_to_copy", "aten::to"),
    actions=("float32", "without double", "half the bytes", "not in double", "bfloat16", "in float", "fewer bytes",
             "compress", "single precision", "half precision", "fp16", "bf16"),
)
def distributed_double_gradients(mended, rank, world):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(), nn.Flatten(),
            )
            self.head = nn.Sequential(nn.Linear(48 * 64, 960), nn.ReLU(), nn.Linear(960, 100))

        def forward(self, images):
            return self.head(self.trunk(images))

    model = Network()
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9, fused=True)
    images, labels = torch.randn(world, 8, 3, 32, 32), torch.randint(100, (world, 8))
    images, labels = images[rank], labels[rank]

    def average():
        flat = torch.cat([weight.grad.flatten() for weight in weights])
        if not mended:
            flat = flat.double()
        dist.all_reduce(flat)
        flat = (flat / world).float()
        for weight, part in zip(weights, flat.split([weight.numel() for weight in weights])):
            weight.grad.copy_(part.view_as(weight))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        average()
        optimizer.step()
        return loss

    return train_step
