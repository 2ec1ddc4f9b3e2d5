// SPDX-License-Identifier: Apache-2.0
// Programs with named inputs, and how to join them.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace epilogue::passes {

// The name of a stage's product among its program's inputs; values of the graph are 0 and above.
constexpr int product_input(int i) { return -2 - i; }

// A program, and what each of its inputs is.
struct BoundProgram {
  PointwiseProgram program;
  std::vector<int> inputs;  // values, or product_input(i)
};

// The program of a pointwise op or node; nullopt, with the reason, where it is none that a program
// can express.
std::optional<BoundProgram> program_of(const graph::Graph& graph, const graph::Node& node,
                                       std::string& reason);
BoundProgram program_of(const graph::ChainStage& stage);
// The inverse; the first inputs must be the stage's products in their order.
void set_program(graph::ChainStage& stage, const BoundProgram& bound);

// Joins programs: inputs of the same name are one, and what was defined is no input.
class ProgramBuilder {
 public:
  // An input that comes in this place even if no step reads it.
  void add_input(int name) { input(name); }
  // Appends a program with one output. That output is `result` from now on.
  void append(const BoundProgram& bound, int result);
  // The program whose output is `result`.
  BoundProgram finish(int result) const;

 private:
  // An operand while the number of inputs is open: an input, or a step.
  struct Operand {
    bool is_step;
    int index;
  };
  struct Step {
    PointwiseStep step;
    std::optional<Operand> a;
    std::optional<Operand> b;
  };
  int input(int name);
  Operand operand(int name);
  int number(Operand o) const;

  std::vector<int> inputs_;
  std::vector<Step> steps_;
  std::map<int, Operand> defined_;
};

}  // namespace epilogue::passes
