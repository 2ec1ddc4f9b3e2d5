# SPDX-License-Identifier: Apache-2.0
"""Models of transformers beside those of models.py, tiny: how to build them, what they take, how many
of their MLPs are fused, and what why() says of the others."""

import typing

import models
import torch
import transformers as t

H, I, V = 48, 112, 96
ENDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=None)
SMALL = dict(hidden_size=H, intermediate_size=I, num_hidden_layers=2, num_attention_heads=4)
TEXT = dict(SMALL, vocab_size=V, max_position_embeddings=128)
LLM = dict(TEXT, **ENDS, num_key_value_heads=2)
ENCODER = dict(TEXT, pad_token_id=0)
PAIR = dict(vocab_size=V, d_model=H, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=I, decoder_ffn_dim=I,
            encoder_attention_heads=4, decoder_attention_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
T5 = dict(vocab_size=V, d_model=H, d_kv=12, d_ff=I, num_layers=2, num_heads=4, pad_token_id=0, decoder_start_token_id=0)
GPT = dict(ENDS, vocab_size=V, n_embd=H, n_layer=2, n_head=4, n_positions=128)
PICTURE = dict(SMALL, image_size=32, patch_size=8)
DINO = dict(hidden_size=H, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, mlp_ratio=2)


class Entry(typing.NamedTuple):
    build: "typing.Callable[[], torch.nn.Module]"
    takes: str = "ids"
    fused: int = 2
    why_not: "tuple[str, ...]" = ()  # of each MLP that is not fused, in their order
    calls: int = 0  # of one run, if not one of each


def _entry(model, config, *rest, **options):
    kinds = getattr(t, model), getattr(t, config)
    return Entry(lambda: kinds[0](kinds[1](**options)), *rest)


def _llm(name, *rest, **options):
    return _entry(f"{name}ForCausalLM", f"{name}Config", "ids", *rest, **{**LLM, **options})


_RENAMED = {
    "opt": _entry("OPTForCausalLM", "OPTConfig", **ENDS, vocab_size=V, hidden_size=H, word_embed_proj_dim=H, ffn_dim=I,
                  num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128),
    "opt_post_norm": _entry("OPTForCausalLM", "OPTConfig", **ENDS, vocab_size=V, hidden_size=H, word_embed_proj_dim=H, ffn_dim=I,
                            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128, do_layer_norm_before=False),
    "gpt_neo": _entry("GPTNeoForCausalLM", "GPTNeoConfig", **ENDS, vocab_size=V, hidden_size=H, num_layers=2, num_heads=4,
                      attention_types=[[["global", "local"], 1]], max_position_embeddings=128, intermediate_size=I),
    "gptj": _entry("GPTJForCausalLM", "GPTJConfig", **GPT, rotary_dim=8),
    "codegen": _entry("CodeGenForCausalLM", "CodeGenConfig", **GPT, rotary_dim=8),
    "gpt_bigcode": _entry("GPTBigCodeForCausalLM", "GPTBigCodeConfig", **GPT),
    "falcon": _entry("FalconForCausalLM", "FalconConfig", **ENDS, vocab_size=V, hidden_size=H, num_hidden_layers=2, num_attention_heads=4),
    "falcon_bias": _entry("FalconForCausalLM", "FalconConfig", **ENDS, vocab_size=V, hidden_size=H, num_hidden_layers=2,
                          num_attention_heads=4, bias=True),
    "bloom": _entry("BloomForCausalLM", "BloomConfig", **ENDS, vocab_size=V, hidden_size=H, n_layer=2, n_head=4),
    "mpt": _entry("MptForCausalLM", "MptConfig", vocab_size=V, d_model=H, n_layers=2, n_heads=4, max_seq_len=128),
}  # fmt: skip
_DECODERS = {
    "gpt_neox": _entry("GPTNeoXForCausalLM", "GPTNeoXConfig", **TEXT, **ENDS),
    "stablelm": _llm("StableLm", partial_rotary_factor=0.5),
    "cohere": _llm("Cohere"),
    "cohere2": _llm("Cohere2"),
    "granite": _llm("Granite", residual_multiplier=0.5),
    "smollm3": _llm("SmolLM3"),
    "olmo": _llm("Olmo"),
    "olmo2": _llm("Olmo2"),
    "starcoder2": _llm("Starcoder2"),
    "glm4": _llm("Glm4", head_dim=12),
    "nemotron": _llm("Nemotron"),
    "mixtral": _llm("Mixtral", num_local_experts=4),
    "qwen2_moe": _llm("Qwen2Moe", 4, num_experts=4, moe_intermediate_size=32,
                      shared_expert_intermediate_size=64, num_experts_per_tok=2),
    "qwen3_moe": _llm("Qwen3Moe", head_dim=12, num_experts=4, moe_intermediate_size=32, num_experts_per_tok=2),
    "granitemoe": _llm("GraniteMoe", num_local_experts=4),
    "olmoe": _llm("Olmoe", num_experts=4, num_experts_per_tok=2),
    "gpt_oss": _llm("GptOss", head_dim=12, num_local_experts=4, num_experts_per_tok=2),
    "deepseek_v3": _llm("DeepseekV3", 3, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=4, n_group=2,
                        topk_group=1, num_experts_per_tok=2, n_shared_experts=1, kv_lora_rank=16, q_lora_rank=24,
                        qk_rope_head_dim=8, v_head_dim=12, qk_nope_head_dim=12, first_k_dense_replace=1),
}  # fmt: skip
_PAIRS = {
    "t5": _entry("T5ForConditionalGeneration", "T5Config", "pair", 4, **T5),
    "t5_gated": _entry("T5ForConditionalGeneration", "T5Config", "pair", 4, **T5, feed_forward_proj="gated-gelu"),
    "bart": _entry("BartForConditionalGeneration", "BartConfig", "pair", 4, **PAIR, max_position_embeddings=128,
                   decoder_start_token_id=2, forced_eos_token_id=None),
    "marian": _entry("MarianMTModel", "MarianConfig", "pair", 4, **PAIR, max_position_embeddings=128, decoder_start_token_id=0,
                     forced_eos_token_id=None),
    "whisper": _entry("WhisperForConditionalGeneration", "WhisperConfig", "sound", 4, **PAIR, num_mel_bins=8, max_source_positions=16,
                      max_target_positions=64, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None),
}  # fmt: skip
_ENCODERS = {
    "distilbert": _entry("DistilBertModel", "DistilBertConfig", vocab_size=V, dim=H, hidden_dim=I, n_layers=2, n_heads=4),
    "roberta": _entry("RobertaModel", "RobertaConfig", **ENCODER),
    "electra": _entry("ElectraModel", "ElectraConfig", **ENCODER, embedding_size=H),
    "albert": _entry("AlbertModel", "AlbertConfig", "ids", 1, (), 2, **ENCODER, embedding_size=H),
    "deberta_v2": _entry("DebertaV2Model", "DebertaV2Config", **ENCODER),
    "xlnet": _entry("XLNetModel", "XLNetConfig", vocab_size=V, d_model=H, n_layer=2, n_head=4, d_inner=I),
    "segformer": _entry("SegformerModel", "SegformerConfig", "picture", 0, ("linear, activation, linear of which",) * 2, depths=[1, 1],
                        num_encoder_blocks=2, hidden_sizes=[16, 32], num_attention_heads=[1, 2], sr_ratios=[2, 1],
                        patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]),
    "mamba": _entry("MambaModel", "MambaConfig", "ids", 0, vocab_size=V, hidden_size=H, num_hidden_layers=2, state_size=8),
    "modernbert": _entry("ModernBertModel", "ModernBertConfig", **ENCODER, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    "wav2vec2": _entry("Wav2Vec2Model", "Wav2Vec2Config", "wave", **SMALL, conv_dim=(16, 16), conv_stride=(5, 4), conv_kernel=(10, 4),
                       num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2),
    "clip": _entry("CLIPVisionModel", "CLIPVisionConfig", "picture", **PICTURE),
    "clip_gelu": _entry("CLIPVisionModel", "CLIPVisionConfig", "picture", **PICTURE, hidden_act="gelu"),
    "siglip": _entry("SiglipVisionModel", "SiglipVisionConfig", "picture", 3, **PICTURE),
    "dinov2": _entry("Dinov2Model", "Dinov2Config", "picture", **DINO),
    "dinov2_swiglu": _entry("Dinov2Model", "Dinov2Config", "picture", **DINO, use_swiglu_ffn=True),
    "swin": _entry("SwinModel", "SwinConfig", "picture", image_size=32, patch_size=4, embed_dim=24, depths=[1, 1], num_heads=[2, 4],
                   window_size=4),
}  # fmt: skip
ZOO = {**_RENAMED, **_DECODERS, **_PAIRS, **_ENCODERS}
GENERATES = sorted({*_RENAMED, *_DECODERS, *_PAIRS})


def build(name):
    return models.varied(ZOO[name].build())


def prompt(takes):
    if takes == "sound":
        return {"input_features": torch.randn(1, 8, 32)}
    return {"input_ids": torch.randint(3, V, (1, 9))}


def inputs(takes):
    if takes == "picture":
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    if takes == "wave":
        return {"input_values": torch.randn(1, 1000)}
    given = prompt(takes)
    return given if takes == "ids" else {**given, "decoder_input_ids": torch.randint(3, V, (1, 5))}


def result(model, given):
    kind = next(model.parameters()).dtype
    cast = {k: v.to(kind) if v.is_floating_point() else v for k, v in given.items()}
    with torch.no_grad():
        return next(v for v in model(**cast).to_tuple() if isinstance(v, torch.Tensor))
