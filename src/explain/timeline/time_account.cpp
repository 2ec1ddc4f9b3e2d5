// SPDX-License-Identifier: Apache-2.0
#include "explain/timeline/time_account.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "epilogue/trace/time.h"
#include "explain/index/device_busy.h"
#include "explain/timeline/idle_causes.h"

namespace epilogue::trace {
namespace {

class Books {
 public:
  BookedWork& entry(StringId kernel, StringId op) {
    const auto [place, is_new] = place_.try_emplace({kernel, op}, work_.size());
    if (is_new) work_.push_back({.kernel = kernel, .op = op});
    return work_[place->second];
  }
  std::vector<BookedWork> take() { return std::move(work_); }

 private:
  std::map<std::pair<StringId, StringId>, size_t> place_;
  std::vector<BookedWork> work_;
};

// Ids of the names of captured ops: of the trace's strings where it has them.
class CapturedNames {
 public:
  CapturedNames(const Trace& trace, const CapturedOps* captured, std::vector<std::string>& more)
      : trace_(trace), captured_(captured), more_(more) {}

  // kNone: the event has no captured op.
  StringId of(uint32_t event) {
    const uint32_t op = captured_ == nullptr ? kNone : captured_->op_of(event);
    if (op == kNone) return kNone;
    const std::string& name = captured_->ops[op].name;
    const auto [place, is_new] = ids_.try_emplace(name, 0);
    if (!is_new) return place->second;
    if (const std::optional<StringId> known = trace_.strings.find(name))
      return place->second = *known;
    more_.push_back(name);
    return place->second = static_cast<StringId>(trace_.strings.size() + more_.size() - 1);
  }

 private:
  const Trace& trace_;
  const CapturedOps* captured_;
  std::vector<std::string>& more_;
  std::unordered_map<std::string, StringId> ids_;
};

// The device's moments, first come first served.
void book_device(const Trace& trace, const Links& links, int32_t device, const IntervalSet& windows,
                 const CapturedOps* captured, TimeAccount& account) {
  Books books;
  CapturedNames names(trace, captured, account.more_names);
  const Coverage wall(windows);
  int64_t reached = INT64_MIN;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.pid != device) continue;
    const Interval fresh = {std::max(e.ts_ns, reached), e.end_ns()};
    reached = std::max(reached, e.end_ns());
    if (wall.within_ns({e.ts_ns, e.end_ns()}) == 0) continue;
    const uint32_t op = links.op[i];
    StringId name = names.of(i);
    if (name == kNone) name = op != kNone ? trace.events[op].name : 0;
    BookedWork& work = books.entry(e.name, name);
    ++work.count;
    work.total_ns += e.dur_ns;
    const int64_t booked = fresh.length_ns() > 0 ? wall.within_ns(fresh) : 0;
    work.booked_ns += booked;
    account.busy_ns += booked;
    const KernelArgs* args = trace.kernel_args(e);
    const bool has_bytes = args != nullptr && args->bytes >= 0 && work.bytes >= 0;
    work.bytes = has_bytes ? work.bytes + args->bytes : -1;
    if (args != nullptr) work.fused_ops = args->fused_ops;
  }
  account.work = books.take();
}

// The thread with the most op time: what it does is what the run waits for.
std::pair<int32_t, int64_t> thread_of_most_op_time(const Trace& trace, const Links& links) {
  std::map<std::pair<int32_t, int64_t>, int64_t> time;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category == Category::cpu_op && links.parent[i] == kNone)
      time[{e.pid, e.tid}] += e.dur_ns;
  }
  const auto longest = std::max_element(
      time.begin(), time.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return longest == time.end() ? std::pair<int32_t, int64_t>{} : longest->first;
}

// Ops nest: each is booked its moments less those of the ops directly below it.
void book_host(const Trace& trace, const Links& links, const IntervalSet& windows,
               TimeAccount& account) {
  Books books;
  const Coverage wall(windows);
  const auto within_ns = [&](const Event& e) { return wall.within_ns({e.ts_ns, e.end_ns()}); };
  const auto thread = thread_of_most_op_time(trace, links);
  int64_t in_ops = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op || std::pair(e.pid, e.tid) != thread) continue;
    const uint32_t parent = links.parent[i];
    // The whole of the op around it, of which a window may show a part.
    if (parent != kNone && within_ns(trace.events[parent]) > 0) {
      const StringId name = trace.events[parent].name;
      books.entry(name, name).total_ns -= e.dur_ns;
    }
    const int64_t within = within_ns(e);
    if (within == 0) continue;
    BookedWork& work = books.entry(e.name, e.name);
    ++work.count;
    work.total_ns += e.dur_ns;
    work.booked_ns += within;
    work.bytes = -1;
    if (parent == kNone) {
      in_ops += within;
    } else {
      const StringId name = trace.events[parent].name;
      books.entry(name, name).booked_ns -= within;
    }
  }
  account.work = books.take();
  account.idle_ns[static_cast<size_t>(IdleCause::host_between_ops)] =
      std::max<int64_t>(account.wall_ns - in_ops, 0);
}

}  // namespace

IntervalSet wall_windows(const Trace& trace, const Links& links, bool use_steps) {
  std::vector<Interval> windows;
  if (use_steps)
    for (const uint32_t i : links.steps)
      windows.push_back({trace.events[i].ts_ns, trace.events[i].end_ns()});
  if (windows.empty()) {
    const Timeline line = timeline(trace, links);
    if (line.start_ns) windows.push_back({*line.start_ns, *line.end_ns});
  }
  return united(std::move(windows));
}

void average_over(TimeAccount& account, int64_t steps) {
  const auto share = [&](int64_t ns) {
    return std::llround(static_cast<double>(ns) / static_cast<double>(steps));
  };
  // Running sums are rounded, not parts.
  int64_t sum = 0;
  const auto book = [&](int64_t& ns) {
    const int64_t shown = share(sum);
    sum += ns;
    ns = share(sum) - shown;
  };
  for (BookedWork& work : account.work) {
    book(work.booked_ns);
    work.count /= static_cast<double>(steps);
    work.total_ns = share(work.total_ns);
    if (work.bytes >= 0) work.bytes = share(work.bytes);
  }
  for (int64_t& ns : account.idle_ns) book(ns);
  account.wall_ns = share(account.wall_ns);
  account.busy_ns = share(account.busy_ns);
}

TimeAccount account_time(const Trace& trace, const Links& links, const IntervalSet& windows,
                         const CapturedOps* captured) {
  TimeAccount account;
  account.wall_ns = total_ns(windows);
  const std::optional<int32_t> device = busiest_device(trace, links);
  account.has_device_work = device.has_value();
  if (!device) {
    book_host(trace, links, windows, account);
    return account;
  }
  book_device(trace, links, *device, windows, captured, account);
  if (windows.empty()) return account;
  const IdleCauses causes =
      idle_causes(trace, links, *device, {windows.front().begin_ns, windows.back().end_ns});
  for (size_t cause = 0; cause < causes.idle.size(); ++cause)
    account.idle_ns[cause] = total_ns(intersected(causes.idle[cause], windows));
  return account;
}

}  // namespace epilogue::trace
