// SPDX-License-Identifier: Apache-2.0
#include "explain/method/asked_ops.h"

#include <algorithm>
#include <charconv>

namespace epilogue::trace {
namespace {

constexpr int64_t kNodesOfOp = 8;  // that an op of several nodes makes

// The call of a graph that was compiled.
bool is_compiled(std::string_view name) {
  return name.starts_with("Torch-Compiled Region") ||
         name.find("CompiledF") != std::string_view::npos;
}

}  // namespace

AskedOps::AskedOps(const CountedOps& all, const Roots& roots) : all_(all), roots_(roots) {
  enum : char { kPlain, kInAten, kInCompiled };
  std::vector<char> within(all.ops.size(), kPlain);
  std::vector<char> calls_others(all.ops.size());
  ByNameOnce<char> kinds(all.trace);
  const auto kind_of = [](std::string_view name) -> char {
    return is_compiled(name) ? kInCompiled : name.starts_with("aten::") ? kInAten : kPlain;
  };
  for (size_t at = 0; at < all.ops.size(); ++at) {
    const uint32_t parent = all.links.parent[all.ops[at]];
    const uint32_t p = parent == kNone ? kNone : all.position[parent];
    if (p != kNone) {
      calls_others[p] = 1;
      within[at] = within[p] != kPlain ? within[p] : kinds.get(all.name_id(p), kind_of);
    }
    if (within[at] == kPlain) list_.push_back(static_cast<uint32_t>(at));
  }
  std::erase_if(list_, [&](uint32_t at) {
    return kinds.get(all.name_id(at), kind_of) != kInAten &&
           (calls_others[at] != 0 || is_autograd_node(all.name(at)));
  });
  for (size_t r = 0; r < roots.size(); ++r)
    if (roots.sequence(r) >= 0 && is_autograd_node(roots.name(r)))
      nodes_[roots.sequence(r)].push_back(r);
}

bool AskedOps::is_same_root(size_t i, size_t j) const {
  const uint32_t a = roots_.of(list_[i]);
  const uint32_t b = roots_.of(list_[j]);
  const auto is_node = [&](uint32_t r) { return r != kNone && is_autograd_node(roots_.name(r)); };
  return a == b || (!is_node(a) && !is_node(b));
}

int64_t AskedOps::sequence(size_t i) const {
  const OpArgs* args = all_.trace.op_args(all_.event(list_[i]));
  return args == nullptr ? -1 : args->sequence_number;
}

int64_t AskedOps::take(size_t i, OpTimes& times, std::vector<uint32_t>& calls,
                       std::vector<uint32_t>* within) const {
  const uint32_t first = list_[i];
  const Event& e = all_.event(first);
  int64_t ns = 0;
  calls.push_back(first);
  for (size_t at = first; at < all_.ops.size() && all_.event(at).ts_ns < e.end_ns(); ++at) {
    if (all_.event(at).tid != e.tid || all_.event(at).pid != e.pid) continue;
    ns += all_.ns_at(at);
    times.add(all_.name_id(at), all_.ns_at(at));
    if (within != nullptr) within->push_back(static_cast<uint32_t>(at));
  }
  // An op that makes no node has the number of the next one, too.
  const int64_t number = sequence(i);
  if (number < 0) return ns;
  int64_t end = number + 1;
  if (i + 1 < list_.size()) {
    const int64_t next = sequence(i + 1);
    if (next == number) return ns;
    if (next > number) end = std::min(next, number + kNodesOfOp);
  }
  for (int64_t n = number; n < end; ++n)
    if (const auto found = nodes_.find(n); found != nodes_.end())
      for (const size_t r : found->second) {
        ns += roots_.add_times(r, times);
        if (within != nullptr)
          within->insert(within->end(), roots_.within(r).begin(), roots_.within(r).end());
      }
  return ns;
}

std::vector<int64_t> numbers_of(std::string_view text) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < text.size();) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), value);
    if (error != std::errc()) {
      ++i;
      continue;
    }
    numbers.push_back(value);
    i = static_cast<size_t>(end - text.data());
  }
  return numbers;
}

}  // namespace epilogue::trace
