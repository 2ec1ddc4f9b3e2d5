// SPDX-License-Identifier: Apache-2.0
// Pages of ranks beside the page of all of them: RUN_ranks/rank_0003.html beside RUN.html. They are
// written to a folder of a temporary name and take their places together, so that a run that
// fails leaves no new page.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"

namespace epilogue::trace {

class RankPages {
 public:
  struct Page {
    int64_t rank = 0;
    std::string file;  // beside the report: "RUN_ranks/rank_0003.html", with the report's folder
    int64_t bytes = 0;
  };

  // `report` is the page of all ranks. Writes nothing yet.
  explicit RankPages(const std::string& report);
  // What was not committed is removed.
  ~RankPages();
  RankPages(const RankPages&) = delete;
  RankPages& operator=(const RankPages&) = delete;

  // The next page is of this rank; without a number of the position in the list. Gives the number.
  int64_t begin(std::optional<int64_t> rank);
  Status add(std::string_view page);
  void add_credentials(const std::vector<std::string>& keys);
  // Puts all pages in their places. Pages of other ranks that lie there stay.
  Status commit();

  const std::vector<Page>& list() const { return pages_; }
  int64_t bytes() const;
  std::vector<std::string> credentials() const {
    return {credentials_.begin(), credentials_.end()};
  }
  const std::string& folder() const { return folder_; }
  // Of the report, from a page of a rank; of the pages, from the report.
  std::string path_to_report() const;
  std::vector<std::string> relative_paths() const;

 private:
  std::string report_;
  std::string folder_;
  std::string temporary_;
  std::vector<Page> pages_;
  int64_t rank_ = 0;  // of the next page
  std::set<std::string> credentials_;
};

}  // namespace epilogue::trace
