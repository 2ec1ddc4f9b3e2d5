# SPDX-License-Identifier: Apache-2.0
"""Runs with a planted cause and clean ones, second set: made after the rules, with other models and
sizes. Some need transformers."""
import json

from planted_case import AVX2, clean, inference, mlp, planted, training

# --- Planted causes, second set: other models, other sizes -----------------------------------------


def small(config, **fields):
    """A model of transformers from a configuration, with random weights."""
    import transformers
    made = getattr(transformers, config + "Config")(**fields)
    return transformers.AutoModel.from_config(made, attn_implementation=fields["_attn_implementation"])


@planted("data-loader", which="second")
def second_loader_tokenises():
    import torch

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 10000

        def __getitem__(self, i):
            words = " ".join(f"word{(i * j) % 97}" for j in range(400)).split()
            return torch.tensor([sum(map(ord, w)) % 1000 for w in words])
    loader = iter(torch.utils.data.DataLoader(Texts(), batch_size=32))
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 64), torch.nn.GRU(64, 32, batch_first=True))

    def step():
        with torch.no_grad():
            model(next(loader)[:, :20])
    return step


@planted("between-ops", which="second")
def second_python_without_stacks():
    import torch
    model = torch.nn.Conv2d(3, 16, 3)

    def step():
        with torch.no_grad():
            rows = json.loads(json.dumps([[i * j % 7 / 7 for i in range(96)] for j in range(96 * 3)]))
            model(torch.tensor(rows).reshape(1, 3, 96, 96))
    return step


@planted("slow-dtype", says="bf16", env=AVX2, which="second")
def second_vit_autocast():
    import torch
    model = small("ViT", hidden_size=192, num_hidden_layers=2, num_attention_heads=3, intermediate_size=768,
                  image_size=112, _attn_implementation="sdpa").eval()
    x = torch.randn(2, 3, 112, 112)

    def step():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(x)
    return step


@planted("fallback-convolution", env=AVX2, which="second")
def second_convolution_bf16():
    import torch
    n = torch.nn
    model = n.Sequential(n.Conv2d(3, 32, 3), n.ReLU(), n.Conv2d(32, 32, 3)).bfloat16()
    return inference(model, torch.randn(2, 3, 64, 64).bfloat16())


@planted("double-precision", says="float64", which="second")
def second_regression_in_double():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(300, 900), torch.nn.Tanh(), torch.nn.Linear(900, 300)).double()
    return training(model, torch.optim.SGD(model.parameters(), 0.01, fused=True),
                    torch.randn(1000, 300, dtype=torch.float64))


@planted("unfused-attention", says="scaled_dot_product_attention", which="second")
def second_bert_eager_attention():
    import torch
    model = small("Bert", hidden_size=256, num_hidden_layers=2, num_attention_heads=8, intermediate_size=512,
                  max_position_embeddings=1024, vocab_size=1000, _attn_implementation="eager")
    return inference(model, torch.randint(0, 1000, (1, 1024)))


@planted("unfused-norm", says="rms_norm", which="second")
def second_t5_norm():
    import torch
    from transformers.models.t5.modeling_t5 import T5LayerNorm
    model = torch.nn.Sequential(T5LayerNorm(512), torch.nn.Linear(512, 64), torch.nn.Linear(64, 512), T5LayerNorm(512))
    return inference(model, torch.randn(4, 1000, 512))


@planted("unfused-norm", says="layer_norm", which="second")
def second_layer_norm_by_hand():
    import torch
    w, b, x = torch.ones(700), torch.zeros(700), torch.randn(3000, 700)

    def step():
        with torch.no_grad():
            y = x
            for _ in range(3):
                d = y - y.mean(-1, keepdim=True)
                y = d / torch.sqrt(d.pow(2).mean(-1, keepdim=True) + 1e-5) * w + b
    return step


@planted("unfused-rotary", says="rotary", which="second")
def second_llama_rotary():
    import torch
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    q, k, angle = torch.randn(1, 24, 900, 80), torch.randn(1, 8, 900, 80), torch.randn(1, 900, 80)
    cos, sin = angle.cos(), angle.sin()

    def step():
        with torch.no_grad():
            for _ in range(3):
                apply_rotary_pos_emb(q, k, cos, sin)
    return step


@planted("unfused-gelu", says="approximate", which="second")
def second_gpt2_mlp():
    import torch
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2MLP
    return inference(GPT2MLP(512, GPT2Config(n_embd=128, resid_pdrop=0)), torch.randn(4, 600, 128))


@planted("unfused-optimizer", says="fused=True", which="second")
def second_adam_of_embeddings():
    import torch
    model = torch.nn.Sequential(torch.nn.Embedding(20000, 128), torch.nn.Linear(128, 128))
    return training(model, torch.optim.Adam(model.parameters()), torch.randint(0, 20000, (64,)))


@planted("unfused-optimizer", says="fused=True", which="second")
def second_sgd_with_momentum():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 8192), torch.nn.Linear(8192, 512))
    return training(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), torch.randn(2, 64))


@planted("bandwidth-products", which="second")
def second_gpt2_decode():
    import torch
    model = small("GPT2", n_embd=768, n_layer=4, n_head=12, vocab_size=500, activation_function="gelu",
                  _attn_implementation="sdpa").eval()
    with torch.no_grad():
        past = model(torch.randint(0, 500, (1, 64)), use_cache=True).past_key_values
    token = torch.randint(0, 500, (1, 1))

    def step():
        with torch.no_grad():
            model(token, past_key_values=past, use_cache=True)
    return step


@planted("dispatch", which="second")
def second_gru_cells():
    import torch
    cell, x = torch.nn.GRUCell(16, 16), torch.randn(400, 4, 16)

    def step():
        with torch.no_grad():
            h = torch.zeros(4, 16)
            for t in range(400):
                h = cell(x[t], h)
    return step


@planted("dispatch", which="second")
def second_if_on_elements():
    import torch
    scores = torch.randn(3000)

    def step():
        with torch.no_grad():
            kept = []
            for s in scores:
                if s > 0.5:
                    kept.append(s * 2)
            torch.stack(kept)
    return step


@planted("thread-contention", which="second")
def second_threads_of_small_norms():
    import torch
    torch.set_num_threads(48)
    n = torch.nn
    return inference(n.Sequential(*[n.Sequential(n.LayerNorm(384), n.ReLU(), n.Linear(384, 384)) for _ in range(8)]),
                     torch.randn(512, 384))


@planted("page-faults", which="second")
def second_large_results():
    import torch
    a, b = torch.randn(12 << 20), torch.randn(12 << 20)

    def step():
        with torch.no_grad():
            c = a - b
            c.abs_()
            d = torch.maximum(c, b)
            d.add_(a)
    return step


@planted("copies", says="contiguous", which="second")
def second_contiguous_again_and_again():
    import torch
    x, model = torch.randn(16, 64, 64, 64), torch.nn.Linear(64, 8)

    def step():
        with torch.no_grad():
            y = x
            for _ in range(3):
                y = y.permute(0, 2, 3, 1).contiguous()
            model(y)
    return step


@planted("copies", says="aten::to", which="second")
def second_weights_cast_each_step():
    import torch
    model, x = mlp(1024, 3), torch.randn(4, 1024)

    def step():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(x)
    return step


@planted("recompilation", says="torch.compile", which="second")
def second_convolution_recompiled():
    import torch
    model = torch.compile(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.SiLU()), dynamic=False)
    sizes = iter(range(20, 90))

    def step():
        with torch.no_grad():
            model(torch.randn(1, 3, next(sizes), 32))
    return step


@planted("boolean-mask", says="masked_fill", which="second")
def second_masked_select():
    import torch
    x, w = torch.randn(1000, 600), torch.randn(600, 32)

    def step():
        with torch.no_grad():
            keep = x > 0
            x[keep].mean()
            x @ w
    return step


# --- Clean runs, second set --------------------------------------------------------------------------


@clean({"fusion", "unfused-norm", "unfused-rotary"}, which="second")
def second_clean_llama():
    import torch
    model = small("Llama", hidden_size=512, num_hidden_layers=2, num_attention_heads=8, intermediate_size=1376,
                  vocab_size=1000, _attn_implementation="sdpa")
    return inference(model, torch.randint(0, 1000, (2, 256)))


@clean({"fusion"}, which="second")
def second_clean_bert():
    import torch
    model = small("Bert", hidden_size=384, num_hidden_layers=3, num_attention_heads=6, intermediate_size=1536,
                  vocab_size=1000, _attn_implementation="sdpa")
    return inference(model, torch.randint(0, 1000, (4, 128)))


@clean({"fusion"}, which="second")
def second_clean_vit():
    import torch
    model = small("ViT", hidden_size=384, num_hidden_layers=3, num_attention_heads=6, intermediate_size=1536,
                  _attn_implementation="sdpa")
    return inference(model, torch.randn(2, 3, 224, 224))


@clean({"fusion", "unfused-gelu"}, which="second")
def second_clean_gpt2():
    import torch
    model = small("GPT2", n_embd=512, n_layer=3, n_head=8, vocab_size=1000, _attn_implementation="sdpa")
    return inference(model, torch.randint(0, 1000, (2, 300)))


@clean(which="second")
def second_clean_compiled_bert():
    import torch
    model = small("Bert", hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=1536,
                  vocab_size=1000, _attn_implementation="sdpa")
    return inference(torch.compile(model), torch.randint(0, 1000, (4, 128)))


@clean({"fusion"}, which="second")
def second_clean_vit_training():
    import torch
    model = small("ViT", hidden_size=192, num_hidden_layers=2, num_attention_heads=3, intermediate_size=768,
                  hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, _attn_implementation="sdpa")

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vit = model

        def forward(self, x):
            return self.vit(x).last_hidden_state
    pooled = Pooled()
    return training(pooled, torch.optim.AdamW(pooled.parameters(), fused=True), torch.randn(4, 3, 224, 224))


@clean({"fusion"}, with_stack=True, which="second")
def second_clean_loader():
    import torch
    data = torch.utils.data.TensorDataset(torch.randn(2000, 3, 32, 32))
    loader = iter(torch.utils.data.DataLoader(data, batch_size=32))
    n = torch.nn
    model = n.Sequential(n.Conv2d(3, 64, 5, padding=2), n.ReLU(), n.Conv2d(64, 128, 5, padding=2), n.ReLU())

    def step():
        with torch.no_grad():
            model(next(loader)[0])
    return step


@clean(which="second")
def second_clean_gru():
    import torch
    return inference(torch.nn.GRU(128, 256), torch.randn(40, 32, 128))
