// SPDX-License-Identifier: Apache-2.0
// The ops that a program asks for, in their order: what searches for cheaper forms of them read.
#pragma once

#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "explain/method/counted_ops.h"
#include "explain/method/roots.h"

namespace epilogue::trace {

// ATen's ops that no other of ATen's calls, also those within autograd nodes; and ops of others
// that call none, which may change what flows between two of ATen's. Compiled code is left out:
// its kernels are no ops.
class AskedOps {
 public:
  AskedOps(const CountedOps& all, const Roots& roots);

  size_t size() const { return list_.size(); }
  bool empty() const { return list_.empty(); }
  uint32_t at(size_t i) const { return list_[i]; }  // a position in CountedOps::ops
  const std::vector<uint32_t>& list() const { return list_; }
  const CountedOps& all() const { return all_; }
  const Roots& roots() const { return roots_; }

  std::string_view name(size_t i) const { return all_.name(list_[i]); }
  std::string_view base(size_t i) const { return all_.base(list_[i]); }
  OpClass kind(size_t i) const { return all_.kind(list_[i]); }
  std::span<const OpInput> inputs(size_t i) const { return all_.inputs(list_[i]); }
  uint64_t key(size_t i) const { return all_.key(list_[i]); }
  // Within the same autograd node, or both outside of any.
  bool is_same_root(size_t i, size_t j) const;
  int64_t sequence(size_t i) const;  // -1: it made no node

  // Adds an op with what it calls, and its nodes of the backward pass; returns their time.
  // `within`: gets all of these ops, if it is not null.
  int64_t take(size_t i, OpTimes& times, std::vector<uint32_t>& calls,
               std::vector<uint32_t>* within = nullptr) const;

 private:
  const CountedOps& all_;
  const Roots& roots_;
  std::vector<uint32_t> list_;
  std::unordered_map<int64_t, std::vector<size_t>> nodes_;  // by sequence number: roots
};

// All whole numbers in a text: "[0, 144]" -> {0, 144}.
std::vector<int64_t> numbers_of(std::string_view text);

// Work that another order or other sizes would not do (excess.cpp). Adds to `found`.
void find_excess(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Linear ops of which the one that has more columns or rows comes first (columns.cpp). Adds to
// `found`.
void find_column_orders(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Tensors that are written to be read once (rows.cpp). Adds to `found`.
void find_written_rows(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Work in pieces that one op does at once (pieces.cpp). Adds to `found`.
void find_pieces(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Ops for which another form has a cheaper one (forms.cpp). Adds to `found`.
void find_forms(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Passes of inference that differ by dropout alone (dropout.cpp). Adds to `found`.
void find_dropout_passes(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Fourier transforms that need not run (transforms.cpp). Adds to `found`.
void find_transforms(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Ops that keep the order before one that reads the order alone (order.cpp). Adds to `found`.
void find_kept_orders(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Softmaxes of the same logits, and pairs in both orders (softmaxes.cpp). Adds to `found`.
void find_computed_twice(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// The same work on the same input (same_input.cpp). Adds to `found`.
void find_same_inputs(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Chains of ops whose result a shorter one gives (known_forms.cpp). Adds to `found`.
void find_known_forms(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Results for which what reads them asks for less (readers.cpp). Adds to `found`.
void find_readers(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Results of which a part is read (parts.cpp). Adds to `found`.
void find_parts(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Work that each round of a loop does again (again.cpp). Adds to `found`.
void find_work_again(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

// Tables that are normalised again for each request (fixed.cpp). Adds to `found`.
void find_fixed_operands(const AskedOps& asked, const Places& places, std::vector<Waste>& found);

}  // namespace epilogue::trace
