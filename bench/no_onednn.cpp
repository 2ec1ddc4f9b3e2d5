// SPDX-License-Identifier: Apache-2.0
// In place of onednn_model.cpp where oneDNN is not built in.
#include "bench/onednn_model.h"

namespace epilogue::bench {

struct OnednnModel::State {
  Tensor result;
};

OnednnModel::OnednnModel(const Model&, const Tensor&) {
  throw Error("[onednn] not built in (libdnnl-dev, -DEPILOGUE_BENCH=ON)");
}
OnednnModel::~OnednnModel() = default;
void OnednnModel::run() {}
const Tensor& OnednnModel::result() const { return state_->result; }
int64_t OnednnModel::intermediate_bytes() const { return 0; }

void OnednnModel::end_threads() {}

}  // namespace epilogue::bench
