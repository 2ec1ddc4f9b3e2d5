# SPDX-License-Identifier: Apache-2.0
"""Round 3: work that is repeated, and results that nobody reads."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-upsample-first",
    round=3,
    domain="vision",
    mode="inference",
    profile=Profile(record_shapes=True),
    cause="A segmentation head interpolates 96 channels to full size and then maps them to 12 classes with a 1 x 1 "
    "convolution; the two commute.",
    symptom="upsample_bilinear2d and a 1 x 1 convolution at full size outweigh the encoder.",
    answer="Interpolate after the 1 x 1 convolution: 12 channels instead of 96, at an eighth of the side.",
    names=("upsample_bilinear2d", "interpolate", "head", "classify"),
    actions=("after the convolution", "convolution first", "before the interpolation", "before upsampling",
             "before the upsampling", "fewer channels", "lower resolution", "swap the two", "reorder"),
)
def vision_upsample_first(mended):
    class Segmenter(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1),
                nn.ReLU(), nn.Conv2d(64, 96, 3, stride=2, padding=1), nn.ReLU(),
            )
            self.classify = nn.Conv2d(96, 12, 1)

        def forward(self, images):
            features, size = self.encoder(images), images.shape[2:]
            if mended:
                return F.interpolate(self.classify(features), size, mode="bilinear")
            return self.classify(F.interpolate(features, size, mode="bilinear"))

    model = Segmenter().eval()
    images = torch.randn(2, 3, 160, 160)

    @torch.inference_mode()
    def segment():
        return model(images)

    return segment


@case(
    id="language-padding",
    round=3,
    domain="language",
    mode="training",
    profile=Profile(record_shapes=True, profile_memory=True),
    cause="Sentences of 12 to 48 tokens are padded to 192.",
    symptom="The model is busy throughout and no op is odd; three quarters of its rows are padding.",
    answer="Every batch is [8, 192] whatever its sentences; pad to the longest of the batch, or bucket by length.",
    names=("padding", "192", "padded"),
    actions=("longest", "dynamic padding", "bucket", "by length", "nested tensor", "packed", "varlen"),
)
def language_padding(mended):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5000, 128, padding_idx=0)
            self.place = nn.Embedding(192, 128)
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.out = nn.Linear(128, 3)

        def forward(self, tokens):
            empty = tokens == 0
            x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
            x = self.encoder(x, src_key_padding_mask=empty)
            weight = (~empty).unsqueeze(2).float()
            return self.out((x * weight).sum(1) / weight.sum(1))

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    sentences = [torch.randint(1, 5000, (n,)) for n in (12, 17, 21, 26, 30, 35, 41, 48)]
    labels = torch.randint(3, (8,))

    def collate():
        batch = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        return batch if mended else F.pad(batch, (0, 192 - batch.shape[1]))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(collate()), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-parametrized-loop",
    round=3,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, steps=3),
    cause="A recurrent vocoder's weight norm is computed anew at each of 40 time steps.",
    symptom="_weight_norm_interface and its backward take more than the recurrent products.",
    answer="The parametrization (weight_norm) of the recurrent layer runs at each time step though the weight is the "
    "same; compute it once a step with parametrize.cached().",
    names=("weight_norm", "_weight_norm", "parametrize", "_WeightNorm", "ParametrizedLinear"),
    actions=("cached", "once per step", "once a step", "remove_weight_norm", "remove_parametrizations", "hoist",
             "outside the loop", "compute once"),
)
def audio_parametrized_loop(mended):
    from torch.nn.utils import parametrize
    from torch.nn.utils.parametrizations import weight_norm

    class Vocoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inputs = nn.Linear(80, 448)
            self.recurrent = weight_norm(nn.Linear(448, 448))
            self.out = nn.Linear(448, 16)

        def forward(self, mel):
            drive = self.inputs(mel)
            state, states = drive.new_zeros(len(mel), 448), []
            for at in range(mel.shape[1]):
                state = torch.tanh(drive[:, at] + self.recurrent(state))
                states.append(state)
            return self.out(torch.stack(states, 1))

    model = Vocoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    mel, wave = torch.randn(4, 40, 80), torch.randn(4, 40, 16)

    def train_step():
        optimizer.zero_grad()
        with parametrize.cached() if mended else contextlib.nullcontext():
            loss = F.mse_loss(model(mel), wave)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-cat-loop",
    round=3,
    domain="graphs",
    mode="training",
    profile=Profile(schedule=False, with_stack=True),
    cause="A batch of 240 small graphs is grown with torch.cat one graph at a time: each copies all earlier ones.",
    symptom="aten::cat takes more than the graph network.",
    answer="batch_graphs calls cat in a loop, so the copies grow with the square; collect the parts in a list and cat "
    "once.",
    names=("aten::cat", "torch.cat", "batch_graphs", "concat"),
    actions=("cat once", "one cat", "single cat", "collect", "preallocate", "DataLoader", "outside the step"),
)
def graph_cat_loop(mended):
    width = 64
    graphs = []
    for _ in range(240):
        nodes = int(torch.randint(12, 30, ()))
        graphs.append((torch.randn(nodes, width), torch.randint(nodes, (2, 3 * nodes))))
    labels = torch.rand(len(graphs), 1)

    def batch_graphs():
        if mended:
            sizes = [len(nodes) for nodes, _ in graphs]
            starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
            edges = torch.cat([edges + start for (_, edges), start in zip(graphs, starts)], 1)
            owner = torch.repeat_interleave(torch.tensor(sizes))
            return torch.cat([nodes for nodes, _ in graphs]), edges, owner
        x, edges, owner = torch.empty(0, width), torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        for at, (nodes, ends) in enumerate(graphs):
            edges = torch.cat([edges, ends + len(x)], 1)
            x = torch.cat([x, nodes])
            owner = torch.cat([owner, torch.full((len(nodes),), at)])
        return x, edges, owner

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = nn.Linear(width, 32), nn.Linear(32, 32), nn.Linear(32, 1)

        def forward(self, x, edges, owner):
            for layer in (self.first, self.second):
                h = layer(x)
                x = F.relu(h.index_add(0, edges[1], h.index_select(0, edges[0])))
            return self.out(x.new_zeros(len(graphs), 32).index_add(0, owner, x) / 20)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(*batch_graphs()), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-randperm",
    round=3,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    same_result=False,  # other random numbers
    cause="Negative samples are the first 1,024 of a permutation of all 800,000 items.",
    symptom="aten::randperm takes more than the model.",
    answer="randperm shuffles 800,000 items to use 1,024; draw them with torch.randint (or multinomial).",
    names=("randperm",),
    actions=("randint", "multinomial", "sample with replacement", "with replacement", "outside the step",
             "precompute"),
)
def recommender_randperm(mended):
    count, width = 800_000, 32
    items = nn.Embedding(count, width, sparse=True)
    user = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, width))
    optimizers = [
        torch.optim.SGD(items.parameters(), lr=0.1),
        torch.optim.Adam(user.parameters(), fused=True),
    ]
    people, liked = torch.randn(1024, 40), torch.randint(count, (1024,))

    def sample_negatives():
        return torch.randint(count, (len(liked),)) if mended else torch.randperm(count)[: len(liked)]

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        who = user(people)
        good, bad = ((who * items(chosen)).sum(1) for chosen in (liked, sample_negatives()))
        loss = -F.logsigmoid(good - bad).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step


@case(
    id="science-batch-jacobian",
    round=3,
    domain="science",
    mode="training",
    profile=Profile(),
    cause="A surrogate is fitted to derivatives that autograd.functional.jacobian takes across the whole batch: 96 "
    "backward passes, of which all but the blocks of one sample are zeros.",
    symptom="A hundred backward passes of a small network in each step.",
    answer="jacobian runs one backward for each output of each sample; sum over the batch (3 passes), or use "
    "vmap(jacrev).",
    names=("jacobian", "backward passes", "autograd.grad", "_jacobian"),
    actions=("vmap", "jacrev", "jacfwd", "sum over the batch", "vectorize=True", "is_grads_batched", "batched",
             "fewer backward", "torch.func"),
)
def science_batch_jacobian(mended):
    from torch.autograd.functional import jacobian

    samples, inputs, outputs = 32, 5, 3
    model = nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(samples, inputs), torch.randn(samples, outputs)
    slopes = torch.randn(samples, outputs, inputs)

    def derivatives():
        if mended:
            return jacobian(lambda rows: model(rows).sum(0), x, create_graph=True).transpose(0, 1)
        full = jacobian(model, x, create_graph=True)
        each = torch.arange(samples)
        return full[each, :, each]

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y) + 0.1 * F.mse_loss(derivatives(), slopes)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="generative-prompt-again",
    round=3,
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True),
    cause="A diffusion sampler encodes the same prompt at each of its six denoising steps.",
    symptom="The text encoder takes over half of the sampling.",
    answer="TextEncoder runs six times on the same tokens; encode the prompt once before the loop.",
    names=("TextEncoder", "text encoder", "prompt"),
    actions=("encode once", "encode the prompt once", "before the loop", "outside the loop", "cache", "reuse", "hoist"),
)
def generative_prompt_again(mended):
    class TextEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(3000, 192)
            layer = nn.TransformerEncoderLayer(192, 6, 768, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, tokens):
            return self.layers(self.embed(tokens)).mean(1)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(4, 48, 3, padding=1), nn.Conv2d(48, 4, 3, padding=1)
            self.middle = nn.Conv2d(48, 48, 3, padding=1)
            self.steer = nn.Linear(192, 48)

        def forward(self, x, text):
            h = F.silu(self.enter(x) + self.steer(text)[:, :, None, None])
            return self.leave(F.silu(self.middle(h)))

    encoder, denoiser = TextEncoder().eval(), Denoiser().eval()
    tokens = torch.randint(3000, (2, 77))

    @torch.inference_mode()
    def sample():
        x = torch.randn(2, 4, 32, 32)
        text = encoder(tokens) if mended else None
        for _ in range(6):
            x = x - 0.1 * denoiser(x, text if mended else encoder(tokens))
        return x

    return sample


@case(
    id="timeseries-retained-graph",
    round=3,
    domain="time series",
    mode="training",
    profile=Profile(steps=3),
    cause="A series is trained in six chunks; each calls backward(retain_graph=True) with a state that is never "
    "detached, so the backward of chunk n goes through all n chunks.",
    symptom="Backward takes many times the forward, and grows with each chunk of a step.",
    answer="Backward repeats the graph of the earlier chunks (retain_graph=True); add the losses and call backward "
    "once, or detach the state.",
    names=("retain_graph", "backward passes", "backward again", "detach"),
    actions=("detach", "one backward", "backward once", "single backward", "sum the losses", "add the losses",
             "accumulate the loss", "truncat"),
)
def timeseries_retained_graph(mended):
    cell, out = nn.GRU(8, 64, batch_first=True), nn.Linear(64, 8)
    optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()], fused=True)
    series = torch.randn(16, 6 * 9 + 1, 8)

    def train_step():
        optimizer.zero_grad()
        state, losses = torch.zeros(1, 16, 64), []
        for chunk in range(6):
            part = series[:, chunk * 9 : chunk * 9 + 10]
            hidden, state = cell(part[:, :-1], state)
            loss = F.mse_loss(out(hidden), part[:, 1:])
            losses.append(loss)
            if not mended:
                loss.backward(retain_graph=True)
        total = torch.stack(losses).sum()
        if mended:
            total.backward()
        optimizer.step()
        return total.detach()

    return train_step


@case(
    id="tabular-full-jacobian",
    round=3,
    domain="tabular",
    mode="training",
    profile=Profile(record_shapes=True),
    cause="A softmax written as an autograd.Function builds the full Jacobian of 160 x 160 for each row in backward.",
    symptom="Backward of a small classifier is several times its forward; bmm, diag_embed and sub are on top.",
    answer="OwnSoftmaxBackward makes a [128, 160, 160] Jacobian; the product is y * (grad - (grad * y).sum()), or use "
    "torch.softmax.",
    names=("OwnSoftmax", "160, 160", "diag_embed", "bmm", "Jacobian"),
    actions=("torch.softmax", "F.softmax", "closed form", "vector-Jacobian", "without the Jacobian",
             "built-in softmax"),
)
def tabular_full_jacobian(mended):
    class OwnSoftmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.softmax(x, 1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            if mended:
                return y * (grad - (grad * y).sum(1, keepdim=True))
            jacobian = torch.diag_embed(y) - y[:, :, None] * y[:, None, :]
            return (jacobian @ grad[:, :, None]).squeeze(2)

    model = nn.Sequential(nn.Linear(60, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 160))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    rows, labels = torch.randn(128, 60), F.one_hot(torch.randint(160, (128,)), 160).float()

    def train_step():
        optimizer.zero_grad()
        loss = (OwnSoftmax.apply(model(rows)) - labels).square().sum(1).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-sync-each",
    round=3,
    domain="language",
    mode="training",
    scale="distributed",
    profile=Profile(record_shapes=True),
    cause="Gradients are accumulated over six micro-batches and DDP reduces all of them after each.",
    symptom="Six rounds of all_reduce a step, each of all gradients, and waiting in each backward.",
    answer="DDP all_reduces at every micro-batch though one optimizer step follows six; wrap the first five in "
    "no_sync().",
    names=("all_reduce", "allreduce", "micro-batch", "accumulat"),
    actions=("no_sync", "once per optimizer step", "once per step", "last micro-batch"),
)
def distributed_sync_each(mended, rank, world):
    model = nn.Sequential(
        nn.EmbeddingBag(1500, 256), nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 4),
    )
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = [(torch.randint(1500, (32, 20)), torch.randint(4, (32,))) for _ in range(6)]

    def train_step():
        optimizer.zero_grad()
        total = 0.0
        for at, (tokens, labels) in enumerate(batches):
            with model.no_sync() if mended and at < len(batches) - 1 else contextlib.nullcontext():
                loss = F.cross_entropy(model(tokens), labels) / len(batches)
                loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return train_step
