// SPDX-License-Identifier: Apache-2.0
// What rules about runs without a device share: shares of the run, products by kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "explain/findings/rule.h"

namespace epilogue::trace {

inline constexpr double kNotableShare = 0.1;  // of the wall time
inline constexpr size_t kHostFindings = 3;    // lines of evidence

inline bool is_notable(const HostTime& host, int64_t ns) {
  return static_cast<double>(ns) >= kNotableShare * static_cast<double>(host.wall_ns);
}

// "12.0 ms of 48.0 ms (25 %)"
std::string share(const HostTime& host, int64_t ns);

// "24 calls, mean 10.4 ms"
std::string calls_text(int64_t count, int64_t ns);

// Products of one kind, by time.
template <class Predicate>
std::vector<const HostProduct*> products_that(const HostTime& host, Predicate&& is_one) {
  std::vector<const HostProduct*> list;
  for (const HostProduct& p : host.products)
    if (is_one(p)) list.push_back(&p);
  return list;
}

int64_t total_of(const std::vector<const HostProduct*>& products);
int64_t total_of(const std::vector<HostLoss>& losses);

// Ops that pay for new pages each time they write their result; none unless they take a notable
// part of the run.
std::vector<const HostLoss*> ops_on_new_pages(const Explanation& e);

// The longest of them, a line each.
void add_product_lines(const HostTime& host, const std::vector<const HostProduct*>& products,
                       Finding& f);

// What makes the data loaders of a run faster.
std::string_view loader_advice(const Explanation& e);

}  // namespace epilogue::trace
