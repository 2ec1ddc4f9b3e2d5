// SPDX-License-Identifier: Apache-2.0
// Copies, fills and collectives.
#include "explain/kernel_name/decode.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kAlgorithms[] = {"RING",  "TREE", "COLLNET", "DIRECT",
                                            "CHAIN", "NVLS", "PAT"};
constexpr std::string_view kProtocols[] = {"LL", "LL128", "SIMPLE"};
constexpr std::string_view kReductions[] = {"Sum",    "Prod",      "Max",       "Min",
                                            "MinMax", "PreMulSum", "SumPostDiv"};

// "AllReduce_RING_LL_Sum_float(ncclWorkElem)", "AllReduce_Sum_bf16_RING_LL(...)"
bool decode_nccl(std::string_view rest, std::string_view family, KernelName& out) {
  const std::vector<std::string_view> tokens = split(rest.substr(0, rest.find_first_of("(<")), '_');
  out.family = std::string(family);
  out.kind = KernelKind::collective;
  known(out, "collective", std::string(tokens[0]));
  out.summary = std::string(tokens[0]);
  for (size_t i = 1; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    // "int8_t" is cut in two.
    const std::string_view type =
        element_type(i + 1 < tokens.size() && tokens[i + 1] == "t" ? std::string(token) + "_t"
                                                                   : std::string(token));
    if (is_one_of(token, kAlgorithms)) {
      known(out, "algorithm", std::string(token));
    } else if (is_one_of(token, kProtocols)) {
      known(out, "protocol", std::string(token));
    } else if (is_one_of(token, kReductions)) {
      known(out, "reduction", std::string(token));
    } else if (!type.empty()) {
      // NCCL 2.12 to 2.18 run every type through one kernel, named of one of them.
      inferred(out, "type", std::string(type), "of the kernel; some versions share it among types");
    } else {
      continue;
    }
    out.summary += " " + std::string(type.empty() ? token : type);
  }
  return true;
}

struct Copy {
  std::string_view mark;
  std::string_view direction;
};
constexpr Copy kCopies[] = {
    {"HtoD", "host to device"},         {"DtoH", "device to host"},
    {"DtoD", "device to device"},       {"PtoP", "device to another device"},
    {"HtoH", "host to host"},           {"HostToDevice", "host to device"},
    {"DeviceToHost", "device to host"}, {"DeviceToDevice", "device to device"}};

}  // namespace

bool decode_memory(const NameText& name, KernelName& out) {
  const std::string_view text = name.text;
  if (text.starts_with("Memset") || text.starts_with("__amd_rocclr_fillBuffer")) {
    out.family = "memset";
    out.kind = KernelKind::fill;
    out.summary = "fill";
    return true;
  }
  const bool is_copy = text.starts_with("Memcpy ") || text.starts_with("CopyHostTo") ||
                       text.starts_with("CopyDeviceTo");
  const bool is_copy_kernel = text.starts_with("__amd_rocclr_copyBuffer");
  if (!is_copy && !is_copy_kernel) return false;
  out.family = "memcpy";
  out.kind = KernelKind::copy;
  out.summary = is_copy_kernel ? "copy made by a kernel" : "copy";
  for (const Copy& copy : kCopies) {
    if (!contains(text, copy.mark)) continue;
    known(out, "direction", std::string(copy.direction));
    out.summary = "copy, " + std::string(copy.direction);
    break;
  }
  if (contains(text, "Pageable")) {
    known(out, "host_memory", "pageable", "staged by the driver: slower, and the call may block");
    out.summary += ", pageable";
  } else if (contains(text, "Pinned")) {
    known(out, "host_memory", "pinned");
  }
  return true;
}

bool decode_collective(const NameText& name, KernelName& out) {
  for (const std::string_view prefix : {"ncclDevKernel_", "ncclKernel_", "ncclSymDevKernel_"})
    if (name.text.starts_with(prefix))
      return decode_nccl(name.text.substr(prefix.size()), "NCCL/RCCL", out);
  if (name.text.starts_with("mscclKernel_"))
    return decode_nccl(name.text.substr(std::string_view("mscclKernel_").size()), "MSCCL", out);
  const std::string_view base = base_name(name.cpp.name);
  for (const std::string_view mark :
       {"all_reduce", "allreduce", "all_gather", "reduce_scatter", "cross_device_reduce"}) {
    if (!contains_ignoring_case(base, mark) || base.starts_with("triton_")) continue;
    out.family = "custom collective";
    out.kind = KernelKind::collective;
    known(out, "function", std::string(base));
    inferred(out, "collective", std::string(mark), "by a word in the name");
    out.summary = std::string(mark) + " by a kernel of its own, not NCCL";
    return true;
  }
  return false;
}

}  // namespace epilogue::trace
