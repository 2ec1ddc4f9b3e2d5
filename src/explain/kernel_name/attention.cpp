// SPDX-License-Identifier: Apache-2.0
// Attention kernels of PyTorch (flash, memory-efficient, cuDNN), AITER and TensorRT-LLM.
#include <cctype>

#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

std::string summarise_attention(const KernelName& out) {
  std::string text = "attention";
  for (const std::string_view key : {"direction", "type", "tile", "head_dim"}) {
    const KernelField* field = out.find(key);
    if (field == nullptr) continue;
    text += key == "head_dim" ? ", head dimension " : key == "tile" ? ", tile " : " ";
    text += field->value;
  }
  return text;
}

bool finish(KernelName& out, std::string_view family) {
  out.family = std::string(family);
  out.kind = KernelKind::attention;
  out.summary = summarise_attention(out);
  return true;
}

void set_direction(KernelName& out, bool is_forward) {
  known(out, "direction", is_forward ? "forward" : "backward");
}

// fmha_cutlassF_bf16_aligned_64x64_rf_sm80, ..._128x128_k128_sm80
bool decode_efficient(std::string_view text, KernelName& out) {
  const std::vector<std::string_view> tokens = split(text.substr(0, text.find('(')), '_');
  if (tokens.size() < 4) return false;
  set_direction(out, tokens[1].starts_with("cutlassF"));
  for (const std::string_view token : std::span(tokens).subspan(2)) {
    if (const auto type = element_type(token); !type.empty()) {
      known(out, "type", std::string(type));
    } else if (const auto sizes = parse_sizes(token); sizes.size() == 2) {
      known(out, "tile", format_sizes(sizes), "queries x keys of one block");
    } else if (token == "aligned" || token == "notaligned") {
      known(out, "aligned", token == "aligned" ? "yes" : "no");
    } else if (token == "rf") {
      inferred(out, "accumulates_in", "registers", "rf: register file");
    } else if (token.starts_with("k") && parse_number(token.substr(1))) {
      known(out, "max_head_dim", std::string(token.substr(1)));
    } else if (token.starts_with("sm")) {
      known(out, "arch", std::string(token), "of its instructions, not of the device");
    }
  }
  return finish(out, "efficient attention");
}

// pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, ...>, false, true, ...>
bool decode_flash(const NameText& name, KernelName& out) {
  const std::string_view base = base_name(name.cpp.name);
  set_direction(out, !contains(base, "bwd"));
  if (name.cpp.args.empty()) return finish(out, "flash attention");
  const CppName traits = parse_cpp_name(name.cpp.args.front());
  if (traits.args.size() >= 4 && contains(traits.name, "traits")) {
    known(out, "head_dim", std::string(traits.args[0]));
    known(out, "tile", std::string(traits.args[1]) + "x" + std::string(traits.args[2]),
          "queries x keys of one block");
    known(out, "warps", std::string(traits.args[3]));
    for (const std::string_view arg : traits.args)
      if (const auto type = element_type(arg); type == "bf16" || type == "f16")
        known(out, "type", std::string(type));
  }
  // Flags by their place, the same in all versions of flash-attention 2.
  if (base == "flash_fwd_kernel" && name.cpp.args.size() >= 3) {
    inferred(out, "dropout", name.cpp.args[1] == "true" ? "yes" : "no", "first flag");
    inferred(out, "causal", name.cpp.args[2] == "true" ? "yes" : "no", "second flag");
  }
  return finish(out, "flash attention");
}

// cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_...
bool decode_cudnn_sdpa(std::string_view text, KernelName& out) {
  const std::vector<std::string_view> tokens = split(text, '_');
  set_direction(out, !contains(text, "bprop"));
  bool has_tile = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    if (const auto sizes = parse_sizes(token); sizes.size() == 3 && !has_tile) {
      has_tile = true;
      known(out, "tile", format_sizes(std::span(sizes).first(2)), "queries x keys of one block");
      known(out, "head_dim", std::to_string(sizes[2]));
    } else if (token.starts_with("sm") && parse_number(token.substr(2))) {
      known(out, "arch", std::string(token));
    } else if (token == "wmma" || token == "wgmma" || token == "utcmma") {
      known(out, "instruction", std::string(token));
    } else if (token == "f16") {
      known(out, "element_size", "2", "f16 stands for any 16-bit type");
    } else if (token == "knob" && i + 1 < tokens.size()) {
      known(out, "knob", std::string(tokens[i + 1]), "variant that its heuristic chose");
    } else if (token.starts_with("cga")) {
      known(out, "cluster", std::string(token.substr(3)));
    }
  }
  return finish(out, "cuDNN attention");
}

// aiter::fmha_fwd_hd128_bf16_rtz
bool decode_aiter(std::string_view base, KernelName& out) {
  for (const std::string_view token : split(base, '_')) {
    if (token == "fwd" || token == "bwd") set_direction(out, token == "fwd");
    if (token.starts_with("hd") && parse_number(token.substr(2)))
      known(out, "head_dim", std::string(token.substr(2)));
    if (const auto type = element_type(token); !type.empty()) known(out, "type", std::string(type));
    if (token == "rtz" || token == "rtne" || token == "rtna")
      inferred(out, "rounding", std::string(token), "of the conversion to 16 bits");
  }
  return finish(out, "AITER attention");
}

// The number after a mark that is followed by digits: ("...H64Paged...", "H") -> "64".
std::string_view number_after(std::string_view text, std::string_view mark) {
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
    size_t end = at + mark.size();
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end > at + mark.size()) return text.substr(at + mark.size(), end - at - mark.size());
  }
  return {};
}

// fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext
bool decode_trtllm_fmha(std::string_view text, KernelName& out) {
  set_direction(out, true);
  const size_t types_at = text.find("_Qkv");
  if (types_at != std::string_view::npos) {
    for (const std::string_view spelling : {"E4m3", "Bfloat16", "Fp16", "E2m1"})
      if (text.substr(types_at + 4).starts_with(spelling))
        known(out, "type", std::string(element_type(spelling)), "of Q, K and V");
  }
  for (const std::string_view spelling : {"Bfloat16", "Fp16", "E4m3", "E2m1"})
    if (contains(text, "O" + std::string(spelling) + "H"))
      known(out, "output_type", std::string(element_type(spelling)));
  if (const auto head = number_after(text, "H"); !head.empty())
    known(out, "head_dim", std::string(head));
  const std::string_view queries = number_after(text, "Q");
  const std::string_view keys = number_after(text, "Kv");
  if (!queries.empty() && !keys.empty())
    known(out, "tile", std::string(queries) + "x" + std::string(keys), "queries x keys");
  if (contains(text, "Causal")) known(out, "causal", "yes");
  if (contains(text, "Sliding")) known(out, "sliding_window", "yes");
  if (contains(text, "PagedKv")) known(out, "paged_kv", "yes");
  if (text.ends_with("Context") || text.ends_with("Generation"))
    known(out, "phase", text.ends_with("Context") ? "context (prefill)" : "generation (decode)");
  return finish(out, "TensorRT-LLM attention");
}

}  // namespace

bool decode_attention(const NameText& name, KernelName& out) {
  const std::string_view function = name.cpp.name;
  const std::string_view base = base_name(function);
  if (name.text.starts_with("fmha_cutlass")) return decode_efficient(name.text, out);
  if (base.starts_with("flash_fwd") || base.starts_with("flash_bwd"))
    return decode_flash(name, out);
  if (base.starts_with("cudnn_generated_") && contains(base, "sdpa"))
    return decode_cudnn_sdpa(base, out);
  if (function.starts_with("aiter::fmha")) return decode_aiter(base, out);
  if (base.starts_with("fmhaSm")) return decode_trtllm_fmha(base, out);
  return false;
}

}  // namespace epilogue::trace
