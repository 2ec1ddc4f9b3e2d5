// SPDX-License-Identifier: Apache-2.0
// How chains grow: stages that read what another chain's last stage makes.
#pragma once

#include <string>
#include <vector>

#include "fused/chain.h"
#include "passes/fuse_nodes.h"

namespace epilogue::passes {

// The chain at `first` with the stages of others behind its last one, whose results `flows` are the
// rows that they read.
struct Extension {
  size_t first;
  Members others;  // the nodes that the stages come from
  std::vector<int> flows;
  std::vector<fused::ChainStage> stages;
  int result;  // of the last of them
};

// Why it cannot be; empty where it can.
std::string reason_against(const graph::Graph& graph, const Extension& extension);

// What others read of the results between is stored. Nodes may move.
void extend_chain(graph::Graph& graph, const Extension& extension);

}  // namespace epilogue::passes
