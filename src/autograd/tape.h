// SPDX-License-Identifier: Apache-2.0
// The tape: turns ops into nodes. An observer of run_op, installed with the first leaf.
#pragma once

#include "core/observer.h"

namespace epilogue {

class Tape final : public TapeObserver {
 public:
  void on_op(const Call& call) override;
};

// Idempotent.
void install_tape();

}  // namespace epilogue
