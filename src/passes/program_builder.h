// SPDX-License-Identifier: Apache-2.0
// Programs with named inputs, and how to join them.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fused/chain.h"

namespace epilogue::passes {

// The name of a stage's product among its program's inputs; values of the graph are 0 and above.
constexpr int product_input(int i) { return -2 - i; }

// A program, and what each of its inputs and outputs is.
struct BoundProgram {
  PointwiseProgram program;
  std::vector<int> inputs;   // values, or product_input(i)
  std::vector<int> results;  // values
  Dims sizes = {};           // of its elements: [..., columns]
};

// The program of a pointwise op or node; nullopt, with the reason, where it is none that a program
// can express.
std::optional<BoundProgram> program_of(const graph::Graph& graph, const graph::Node& node,
                                       std::string& reason);
// Whether programs there read bytes and booleans as masks.
bool programs_read_masks(const graph::Graph& graph);
// Why a program cannot read or make these values; empty where it can.
std::string reason_against_values(const graph::Graph& graph, const BoundProgram& bound);
// Of a chain's last stage, without its sizes.
BoundProgram last_program(const graph::Node& chain);
// The inverse, for a chain that `node` becomes: the first inputs must be the stage's products in
// their order; the first result becomes the node's.
void set_last_program(graph::Node& node, fused::Chain chain, const BoundProgram& bound);

// Joins programs: inputs of the same name are one, what was defined is no input, and a step that is
// there already is not repeated (a norm that runs again beside its gradient shares its statistics).
class ProgramBuilder {
 public:
  // An input that comes in this place even if no step reads it.
  void add_input(int name) { input(name); }
  // Appends a program. Its outputs are known by the names of its results from now on.
  void append(const BoundProgram& bound);
  // The program whose outputs are `results`; its sizes are the caller's to say.
  BoundProgram finish(const std::vector<int>& results) const;

 private:
  // An operand while the number of inputs is open: an input, or a step.
  struct Operand {
    bool is_step;
    int index;
    bool operator==(const Operand&) const = default;
  };
  struct Step {
    PointwiseStep step;
    std::array<std::optional<Operand>, kMostPointwiseOperands> operands;
    bool is_same(const Step& other) const {
      return step.fn == other.step.fn && step.constant == other.step.constant &&
             step.parameters == other.step.parameters && operands == other.operands;
    }
  };
  int input(int name);
  Operand operand(int name);
  int number(Operand o) const;

  std::vector<int> inputs_;
  std::vector<Step> steps_;
  std::map<int, Operand> defined_;
};

}  // namespace epilogue::passes
