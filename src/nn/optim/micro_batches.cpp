// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "epilogue/optim.h"

namespace epilogue::optim {

std::vector<MicroBatch> micro_batches(int64_t rows, int64_t count) {
  if (count < 1 || rows < 0)
    throw Error("[micro_batches] expected rows >= 0 in 1 or more parts, got " +
                std::to_string(rows) + " in " + std::to_string(count));
  const int64_t size = std::max<int64_t>(1, rows / count + (rows % count != 0 ? 1 : 0));
  std::vector<MicroBatch> parts;
  int64_t end = 0;
  for (int64_t begin = 0; begin < rows; begin = end) {
    end = begin + std::min(size, rows - begin);
    parts.push_back({begin, end, static_cast<double>(end - begin) / static_cast<double>(rows)});
  }
  return parts;
}

}  // namespace epilogue::optim
