# SPDX-License-Identifier: Apache-2.0
"""Round 23: Python between the ops, formulas by hand, and work that one rank does alone."""

import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-confusion-loop",
    round=23,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="The confusion matrix of a segmentation is counted label by label: one Python turn with "
    "an indexed addition for each of 576 labels.",
    symptom="Thousands of aten::select and hundreds of aten::add_ and aten::copy_ of one number "
    "between the optimizer and the next step.",
    answer="count_labels adds one to confusion[label, guess] in a Python loop over 576 labels, "
    "some ten tiny ops each; count all at once: bincount of label * kinds + guess, reshaped (or "
    "index_put_ with accumulate).",
    names=("count_labels", "aten::select", "confusion", "aten::add_"),
    actions=("bincount", "at once", "vectori", "index_put", "scatter_add", "index_add", "histc",
             "without the loop", "without a loop", "no loop", "one op", "instead of the loop",
             "one call", "whole tensor", "out of the loop", "accumulate=True"),
)
def vision_confusion_loop(mended):
    images, side, cells, kinds, width = 4, 96, 12, 12, 32

    class Segmenter(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, width, 4, 4), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
                nn.Conv2d(width, 2 * width, 2, 2), nn.ReLU(), nn.Conv2d(2 * width, kinds, 1),
            )

        def forward(self, x):
            return self.layers(x)

    model = Segmenter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    pictures, labels = torch.rand(images, 3, side, side), torch.randint(
        kinds, (images, cells, cells)
    )
    confusion = torch.zeros(kinds, kinds, dtype=torch.long)

    def count_labels(labels, guesses):
        if mended:
            pairs = (labels * kinds + guesses).flatten()
            confusion.add_(pairs.bincount(minlength=kinds * kinds).view(kinds, kinds))
            return
        for label, guess in zip(labels.flatten().tolist(), guesses.flatten().tolist()):
            confusion[label, guess] += 1

    def train_step():
        optimizer.zero_grad()
        scores = model(pictures)
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        count_labels(labels, scores.argmax(1))
        right = confusion.diagonal().sum() / confusion.sum()
        return loss.detach() + right

    return train_step


@case(
    id="language-tokenise-each-step",
    round=23,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="The texts of a batch are cut into word pieces by a tokeniser in pure Python in each "
    "step, in the main process; the texts are the same in each epoch.",
    symptom="tokenise takes most of a step; no op runs in it.",
    answer="collate calls tokenise, a greedy Python loop over pieces of each word, on the same "
    "texts in each epoch while the model waits; tokenise the data set once and keep its ids (or "
    "use a fast tokeniser and worker processes).",
    names=("tokenise", "collate", "tokeniz", "word piece"),
    actions=("once", "cache", "precompute", "in advance", "beforehand", "before training",
             "fast tokeni", "num_workers", "worker", "keep the ids", "store", "offline",
             "ahead of", "out of the step", "background", "prefetch", "tokenizers",
             "preprocess"),
)
def language_tokenise_each_step(mended):
    rows, words, length, width, kinds, longest = 32, 50, 240, 64, 6, 16

    draw = random.Random(0)
    letters = "abcdefghijklmnop"
    pieces = sorted({
        *letters, *("".join(draw.choices(letters, k=draw.randint(2, 4))) for _ in range(1500))
    })
    numbers = {piece: at + 1 for at, piece in enumerate(pieces)}
    texts = [
        " ".join("".join(draw.choices(letters, k=draw.randint(6, longest))) for _ in range(words))
        for _ in range(rows)
    ]

    def tokenise(text):
        ids = []
        for word in text.lower().split():
            while word:
                end = longest
                while word[:end] not in numbers:
                    end -= 1
                ids += [numbers[word[:end]]]
                word = word[end:]
        return ids

    def collate(texts):
        ids = torch.zeros(rows, length, dtype=torch.long)
        for row, text in zip(ids, texts):
            found = tokenise(text)[:length]
            row[: len(found)] = torch.tensor(found)
        return ids

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(len(pieces) + 1, width, padding_idx=0)
            self.layers = nn.Sequential(
                nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 4 * width), nn.ReLU(),
                nn.Linear(4 * width, kinds),
            )

        def forward(self, ids):
            return self.layers(self.table(ids).mean(1))

    model, labels = Reader(), torch.randint(kinds, (rows,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    stored = collate(texts)

    def train_step():
        ids = stored if mended else collate(texts)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-norm-by-hand",
    round=23,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=2),
    cause="A separator of convolutions has its global layer norm written out: means, differences, "
    "squares, a power and products, each an op with a backward of its own.",
    symptom="aten::mean, sub, pow, div, mul and add of [4, 128, 500] in GlobalNorm, dearer than "
    "the convolutions, and their backward.",
    answer="GlobalNorm computes mean, variance and scale by some ten elementwise ops that each "
    "pass over the whole tensor, forward and backward; one F.group_norm with one group is the same "
    "formula in one op.",
    names=("GlobalNorm", "aten::pow", "aten::mean", "PowBackward", "norm by hand", "aten::div",
           "aten::sub", "DivBackward"),
    actions=("group_norm", "GroupNorm", "native_group_norm", "layer_norm", "LayerNorm",
             "fused norm", "one op", "instance_norm", "built-in", "builtin", "torch.compile"),
)
def audio_norm_by_hand(mended):
    clips, length, filters, width, depth = 4, 4000, 64, 128, 3

    class GlobalNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(1, width, 1))
            self.shift = nn.Parameter(torch.zeros(1, width, 1))

        def forward(self, y):
            if mended:
                return F.group_norm(y, 1, self.gain.flatten(), self.shift.flatten(), 1e-8)
            mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
            spread = torch.pow(y - mean, 2).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
            return self.gain * (y - mean) / torch.pow(spread + 1e-8, 0.5) + self.shift

    class Block(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(filters, width, 1), nn.ReLU(), GlobalNorm(),
                nn.Conv1d(width, width, 3, 1, dilation, dilation, width), nn.ReLU(), GlobalNorm(),
                nn.Conv1d(width, filters, 1),
            )

        def forward(self, x):
            return x + self.layers(x)

    class Separator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv1d(1, filters, 16, 8, 4)
            self.blocks = nn.Sequential(*[Block(2**k) for k in range(depth)])
            self.leave = nn.ConvTranspose1d(filters, 1, 16, 8, 4)

        def forward(self, mixed):
            coded = self.enter(mixed[:, None]).relu()
            return self.leave(self.blocks(coded).sigmoid() * coded)[:, 0]

    model, spoken = Separator(), torch.randn(clips, length)
    mixed = spoken + torch.randn(clips, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = F.l1_loss(model(mixed), spoken)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-walks-in-python",
    round=23,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True, steps=2),
    cause="Random walks for node vectors are drawn walk by walk and move by move in Python, with a "
    "random number and an item for each move.",
    symptom="640 times aten::randint of one number, aten::select and aten::item, before a short "
    "forward and backward.",
    answer="The walks are drawn one move of one walk at a time: aten::randint, select and item "
    "(_local_scalar_dense) 640 times a step; move all walks together: one rand for all, an index "
    "into the list of neighbours by offset and degree, ten times a step.",
    names=("randint", "aten::item", "_local_scalar_dense", "random walk", "walk", "random_",
           "aten::select"),
    actions=("all walks", "at once", "vectori", "together", "one op", "in parallel",
             "one call", "random numbers in advance", "draw all", "once for all", "whole tensor",
             "workers", "without the loop", "no loop", "out of the loop", "random_walk"),
    same_result=False,  # other walks are drawn
)
def graph_walks_in_python(mended):
    nodes, edges, width, walks, moves, wrong = 3000, 18_000, 48, 64, 10, 5

    source = torch.cat([torch.arange(nodes), torch.randint(nodes, (edges,))])
    target = torch.randint(nodes, (nodes + edges,))[source.argsort()]
    degrees = source.bincount(minlength=nodes)
    begins = degrees.cumsum(0) - degrees
    neighbours = target.split(degrees.tolist())

    def draw_walk(start):
        walk = [start]
        for _ in range(moves):
            near = neighbours[walk[-1]]
            walk.append(near[torch.randint(len(near), (1,))].item())
        return walk

    def draw_walks(starts):
        if not mended:
            return torch.tensor([draw_walk(start) for start in starts.tolist()])
        seen = [starts]
        for _ in range(moves):
            here = seen[-1]
            chosen = (torch.rand(walks) * degrees[here]).long()
            seen.append(target[begins[here] + chosen])
        return torch.stack(seen, 1)

    class Vectors(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Embedding(nodes, width), nn.Embedding(nodes, width)

        def forward(self, middle, around):
            return (self.own(middle)[:, None] @ self.other(around).transpose(1, 2))[:, 0]

    model = Vectors()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)

    def train_step():
        walk = draw_walks(torch.randint(nodes, (walks,)))
        middle, after = walk[:, :-1].flatten(), walk[:, 1:].flatten()
        around = torch.cat([after[:, None], torch.randint(nodes, (len(after), wrong))], 1)
        optimizer.zero_grad()
        scores = model(middle, around)
        loss = F.softplus(-scores[:, 0]).mean() + F.softplus(scores[:, 1:]).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-table-per-field",
    round=23,
    domain="recommenders",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True, steps=2),
    cause="A click model has a table of its own for each of 110 small fields and looks each up by "
    "itself.",
    symptom="aten::embedding 110 times forward and embedding_dense_backward 110 times, each of "
    "[256] ids and vectors of 8 numbers, and aten::cat behind them.",
    answer="110 small nn.Embedding are looked up one by one, so that calls cost more than the look-"
    "ups; put the fields into one table with an offset for each field and look all up by one "
    "aten::embedding.",
    names=("aten::embedding", "embedding_dense_backward", "EmbeddingBackward", "110", "ModuleList",
           "Embedding", "aten::cat"),
    actions=("one table", "single table", "offset", "one embedding", "single embedding",
             "one lookup", "one look-up", "EmbeddingBag", "merge the tables", "combine the tables",
             "concatenate the tables", "shared table", "joint table", "stack the tables",
             "fuse the tables", "one call", "together"),
)
def recommender_table_per_field(mended):
    rows, fields, values, width = 256, 110, 40, 8

    class Clicks(nn.Module):
        def __init__(self):
            super().__init__()
            tables = [nn.Embedding(values, width) for _ in range(fields)]
            self.layers = nn.Sequential(
                nn.Linear(fields * width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                nn.Linear(32, 1),
            )
            if mended:
                joined = torch.cat([table.weight.detach() for table in tables])
                self.table = nn.Embedding.from_pretrained(joined, freeze=False)
                self.register_buffer("offsets", torch.arange(fields) * values)
            else:
                self.tables = nn.ModuleList(tables)

        def forward(self, ids):
            if mended:
                found = self.table(ids + self.offsets).flatten(1)
            else:
                found = torch.cat([table(ids[:, k]) for k, table in enumerate(self.tables)], 1)
            return self.layers(found)[:, 0]

    model = Clicks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids, clicked = torch.randint(values, (rows, fields)), torch.rand(rows).round()

    def train_step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(ids), clicked)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-27-images",
    round=23,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    cause="Distances in a periodic box are the least of those to all 27 copies of each atom, where "
    "a rounded difference gives the nearest copy.",
    symptom="aten::add, square, sum and amin of [160, 160, 27, 3], before a network on "
    "[160, 160].",
    answer="distances adds 27 shifts to each difference of 160 x 160 atoms and takes the minimum; "
    "by the minimum-image rule subtract side * round(difference / side), which gives the nearest "
    "copy from [160, 160, 3] at once.",
    names=("distances", "27", "aten::amin", "aten::square", "images", "periodic", "shifts"),
    actions=("round", "minimum image", "minimum-image", "nearest image", "remainder", "wrap",
             "fmod", "without the copies", "neighbour list", "neighbor list", "cell list",
             "instead of 27", "instead of all 27", "per axis", "each axis", "torch.where"),
)
def science_27_images(mended):
    atoms, side, bells, width = 160, 9.0, 16, 32

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres = nn.Parameter(torch.linspace(0.5, 4, bells))
            self.layers = nn.Sequential(nn.Linear(bells, width), nn.SiLU(), nn.Linear(width, 1))

        def forward(self, apart):
            seen = torch.exp(-4 * (apart[:, None] - self.centres).square())
            return self.layers(seen).sum()

    model, places = Pairs().eval(), torch.rand(atoms, 3) * side
    shifts = torch.cartesian_prod(*[torch.tensor([-side, 0.0, side])] * 3)

    def distances():
        apart = places[:, None] - places
        if mended:
            apart = apart - side * (apart / side).round()
            return apart.square().sum(2).sqrt()
        return (apart[:, :, None] + shifts).square().sum(3).amin(2).sqrt()

    upper = torch.ones(atoms, atoms, dtype=torch.bool).triu(1)

    @torch.inference_mode()
    def energy():
        apart = distances()
        return model(apart[upper & (apart < 3)]) / atoms

    return energy


@case(
    id="generative-choices-from-list",
    round=23,
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=3),
    cause="Each next note is drawn in Python: the chances of 2,000 notes are made a list for each "
    "song, and random.choices adds them up.",
    symptom="draw with random.choices takes longer than the recurrent cell; aten::softmax is "
    "followed by tolist.",
    answer="draw turns [12, 2000] chances into Python lists for each note and calls random.choices "
    "row by row; torch.multinomial draws all rows in one op, without lists.",
    names=("draw", "choices", "tolist", "random.py"),
    actions=("multinomial", "Categorical", "gumbel", "argmax", "one op", "searchsorted",
             "in tensors", "without list", "on tensors", "vectori", "at once", "cumsum",
             "exponential_", "in torch"),
    same_result=False,  # other notes are drawn
)
def generative_choices_from_list(mended):
    songs, notes, width, length = 12, 2000, 128, 16

    class Composer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.cell = nn.Embedding(notes, width), nn.GRUCell(width, width)
            self.head = nn.Linear(width, notes)

        def forward(self, note, state):
            state = self.cell(self.table(note), state)
            return self.head(state), state

    model, first = Composer().eval(), torch.randint(notes, (songs,))

    def draw(scores):
        chances = scores.softmax(1)
        if mended:
            return chances.multinomial(1)[:, 0]
        every = range(notes)
        return torch.tensor([random.choices(every, row)[0] for row in chances.tolist()])

    @torch.inference_mode()
    def compose():
        note, state, written = first, torch.zeros(songs, width), []
        for _ in range(length):
            scores, state = model(note, state)
            note = draw(scores)
            written.append(note)
        return torch.stack(written, 1)

    return compose


@case(
    id="tabular-column-loop",
    round=23,
    domain="tabular",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="Missing numbers are filled and columns scaled one column at a time, 150 columns a "
    "batch.",
    symptom="Some 150 of aten::isnan, aten::index_put_, sub, div and copy_ a step, each of one "
    "column with stride.",
    answer="prepare loops over 150 columns and fills and scales each by ops of its own; fill and "
    "scale the whole table at once: torch.where(x.isnan(), medians, x), minus means, over spreads.",
    names=("prepare", "isnan", "index_put", "aten::copy_", "column", "masked_fill"),
    actions=("torch.where", "at once", "whole table", "whole batch", "vectori", "broadcast",
             "all columns", "one op", "without the loop", "no loop", "nan_to_num", "whole tensor",
             "in advance", "once", "beforehand", "out of the loop", "instead of the loop"),
)
def tabular_column_loop(mended):
    rows, columns, width = 512, 150, 128

    table = torch.randn(rows, columns) * 3 + 1
    table[torch.rand(rows, columns) < 0.1] = torch.nan
    medians = table.nanmedian(0).values
    filled = torch.where(table.isnan(), medians, table)
    means, spreads = filled.mean(0), filled.std(0)

    def prepare(table):
        if mended:
            return (torch.where(table.isnan(), medians, table) - means) / spreads
        x = table.clone()
        for k in range(columns):
            column = x[:, k]
            column[column.isnan()] = medians[k]
            x[:, k] = (column - means[k]) / spreads[k]
        return x

    model = nn.Sequential(
        nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    wanted = torch.randn(rows)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(prepare(table))[:, 0], wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-columns-of-store",
    round=23,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    cause="Series are stored as columns, one row a moment; a batch takes the columns of 192 "
    "series, so that each number comes from another line of memory.",
    symptom="aten::index of [2048, 4000] by 192 ids in dimension 1 takes longer than the model, "
    "and a copy to [192, 2048] follows.",
    answer="read_batch picks 192 columns of a [2048, 4000] store: each number is a line of cache "
    "of its own, and the result is transposed again. Store the series as rows ([4000, 2048], "
    "transposed once) and take rows, which are contiguous.",
    names=("read_batch", "aten::index", "column", "aten::contiguous", "2048, 4000", "strided",
           "aten::clone"),
    actions=("as rows", "take rows", "rows of", "transpose the store", "transposed once",
             "transpose it once", "row-major",
             "series first", "series-major", "series by series", "each series contiguous",
             "4000, 2048",
             "layout", "store it transposed", "transpose once", "index_select"),
)
def timeseries_columns_of_store(mended):
    moments, series, batch, ahead, patch, width = 2048, 4000, 192, 24, 16, 96

    store = torch.randn(moments + ahead, series)
    if mended:
        store = store.t().contiguous()

    def read_batch(ids):
        if mended:
            found = store[ids]
        else:
            found = store[:, ids].t().contiguous()
        return found[:, :moments], found[:, moments:]

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(moments // patch, width), nn.ReLU(), nn.Linear(width, ahead)
            )

        def forward(self, past):
            level = past.mean(1, keepdim=True)
            return self.layers(past.unflatten(1, (-1, patch)).mean(2) - level) + level

    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        past, future = read_batch(torch.randint(series, (batch,)))
        optimizer.zero_grad()
        loss = F.mse_loss(model(past), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-reduces-each-metric",
    round=23,
    domain="vision",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True, steps=3),
    cause="For a log, each step averages 40 numbers over the ranks by an all_reduce of its own and "
    "reads each with item before the next.",
    symptom="gloo:all_reduce of one number runs 40 times a step, with aten::item behind each, "
    "beside the one of DistributedDataParallel.",
    answer="log_metrics calls all_reduce on one number at a time, 40 times a step, and waits for "
    "each; stack the numbers and reduce them by one all_reduce, or log every fiftieth step.",
    names=("log_metrics", "all_reduce", "allreduce", "metric", "item"),
    actions=("stack", "one all_reduce", "single all_reduce", "one tensor", "together", "at once",
             "every fiftieth", "less often", "every n", "every 50", "every 100", "accumulate local",
             "one collective", "single collective", "concatenate", "coalesce", "async_op",
             "one reduction", "pack", "interval"),
)
def distributed_reduces_each_metric(mended, rank, world):
    rows, side, kinds, width = 40, 16, 20, 16

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1),
                nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, kinds),
            )

        def forward(self, x):
            return self.layers(x)

    model = nn.parallel.DistributedDataParallel(Classifier(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    pictures = torch.rand(world, rows, 3, side, side)[rank]
    labels = torch.randint(kinds, (world, rows))[rank]
    log = {}

    def log_metrics(metrics):
        if mended:
            numbers = torch.stack(list(metrics.values()))
            dist.all_reduce(numbers)
            log.update(zip(metrics, (numbers / world).tolist()))
            return
        for name, number in metrics.items():
            number = number.clone()
            dist.all_reduce(number)
            log[name] = (number / world).item()

    def train_step():
        optimizer.zero_grad()
        scores = model(pictures)
        losses = F.cross_entropy(scores, labels, reduction="none")
        losses.mean().backward()
        optimizer.step()
        with torch.no_grad():
            right = (scores.argmax(1) == labels).float()
            sums = torch.stack([right, losses]).mean(1)
            hits = torch.zeros(2, kinds).index_add_(1, labels, torch.stack([right, losses]))
        names = [f"{what}/{kind}" for what in ("right", "loss") for kind in range(kinds)]
        log_metrics(dict(zip(names, hits.flatten().unbind())))
        return sums[1] + log["right/0"] + log["loss/1"]

    return train_step
