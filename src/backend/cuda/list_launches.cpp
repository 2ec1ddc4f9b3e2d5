// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/list_launches.h"

#include <algorithm>

namespace epilogue::cuda {

std::vector<ListTensors> list_launches(const Call& call) {
  const ListCall lists(call);
  std::vector<ListTensors> launches;
  for (size_t first = 0; first < lists.size(); first += kListTensors) {
    ListTensors& launch = launches.emplace_back();
    const size_t count = std::min<size_t>(kListTensors, lists.size() - first);
    launch.count = static_cast<int>(count);
    launch.dtype = lists.at(0, 0).dtype();
    for (size_t i = 0; i < count; ++i) {
      launch.numel[i] = lists.at(0, first + i).numel();
      launch.first_block[i + 1] =
          launch.first_block[i] + (launch.numel[i] + kListTile - 1) / kListTile;
      for (size_t list = 0; list < call.op.lists; ++list)
        if (const Tensor& t = lists.at(list, first + i); t.defined())
          launch.data[list][i] = t.data();
    }
  }
  return launches;
}

}  // namespace epilogue::cuda
