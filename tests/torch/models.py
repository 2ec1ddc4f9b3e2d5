# SPDX-License-Identifier: Apache-2.0
"""What the tests run: the architectures of epilogue.torch's promise, small."""

import copy
import io
import pickle

import torch
import transformers as t

SIZES = dict(
    vocab_size=96, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=640, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
# Of a real model's width, for what is said of errors: sums of 48 terms are too short for it.
WIDE = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=1)


def counted(call):
    """What a call gives, and how often it ran each op."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        out = call()
    return out, {event.key: event.count for event in seen.key_averages()}


def _bert(dropout=0.1, **sizes):
    config = {k: v for k, v in dict(SIZES, **sizes).items() if k not in ("num_key_value_heads", "bos_token_id", "eos_token_id")}
    return t.BertModel(t.BertConfig(**config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout))


def _gpt2(hidden_size=48, num_hidden_layers=2, dropout=0.1, **_):
    sizes = dict(n_embd=hidden_size, n_layer=num_hidden_layers, n_head=4, vocab_size=96, n_positions=640)
    rates = dict(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    return t.GPT2LMHeadModel(t.GPT2Config(**sizes, **rates, bos_token_id=1, eos_token_id=None))


def _vit(hidden_size=48, intermediate_size=112, num_hidden_layers=2):
    sizes = dict(hidden_size=hidden_size, intermediate_size=intermediate_size, num_hidden_layers=num_hidden_layers)
    config = t.ViTConfig(**sizes, num_attention_heads=4, image_size=32, patch_size=4)
    return t.ViTModel(config)


BUILD = {
    "llama": lambda **s: t.LlamaForCausalLM(t.LlamaConfig(**dict(SIZES, **s))),
    "llama_bias": lambda **s: t.LlamaForCausalLM(t.LlamaConfig(**dict(SIZES, **s), mlp_bias=True)),
    "llama_gelu": lambda **s: t.LlamaForCausalLM(t.LlamaConfig(**dict(SIZES, **s), hidden_act="gelu")),
    "mistral": lambda **s: t.MistralForCausalLM(t.MistralConfig(**dict(SIZES, **s))),
    "qwen2": lambda **s: t.Qwen2ForCausalLM(t.Qwen2Config(**dict(SIZES, **s))),
    "qwen3": lambda **s: t.Qwen3ForCausalLM(t.Qwen3Config(**dict(SIZES, **s), head_dim=12)),
    "gemma": lambda **s: t.GemmaForCausalLM(t.GemmaConfig(**dict(SIZES, **s), head_dim=12)),
    "gemma2": lambda **s: t.Gemma2ForCausalLM(t.Gemma2Config(**dict(SIZES, **s), head_dim=12)),
    "gemma3": lambda **s: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**dict(SIZES, **s), head_dim=12)),
    "phi": lambda **s: t.PhiForCausalLM(t.PhiConfig(**dict(SIZES, **s))),
    "phi3": lambda **s: t.Phi3ForCausalLM(t.Phi3Config(**dict(SIZES, **s))),
    "gpt2": _gpt2,
    "bert": _bert,
    "vit": _vit,
}
LAYERS = 2
GENERATES = sorted(set(BUILD) - {"bert", "vit"})


def build(name, **sizes):
    return varied(BUILD[name](**sizes))


def varied(model):
    """In eval mode, with biases and norms that are not all zeros or ones."""
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def ids(rows):
    return torch.randint(2, 96, (1, rows))


def mlp_of(model, name):
    """The first module that holds an MLP, and its method."""
    base = getattr(model, "model", None) or getattr(model, "transformer", None) or model
    layers = getattr(base, "layers", None)
    if layers is None:
        layers = base.h if hasattr(base, "h") else base.encoder.layer
    layer = layers[0]
    if name == "bert":
        return layer, "feed_forward_chunk"
    return layer.mlp, "forward"


def copied(module, how):
    """Another module of the same state: by "deepcopy", "pickle" or "torch.save"."""
    if how == "deepcopy":
        return copy.deepcopy(module)
    if how == "pickle":
        return pickle.loads(pickle.dumps(module))
    file = io.BytesIO()
    torch.save(module, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


def apart(model):
    """A copy whose layers of one new token run as single ops."""
    from epilogue.torch import decoded, decoded_layer

    other = copy.deepcopy(model)
    for module in other.modules():
        decoded.unfuse_decoded(module)
        decoded_layer.unfuse_decoded_layer(module)
    return other
