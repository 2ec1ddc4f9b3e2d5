// SPDX-License-Identifier: Apache-2.0
// The subcommands of the engine half.
#include "tools/epilogue/command.h"

namespace epilogue::tool {

// Each is defined in NAME_command.cpp.
void add_profile_command(CLI::App& app, Body& run);
void add_bench_command(CLI::App& app, Body& run);
void add_compile_command(CLI::App& app, Body& run);
void add_train_command(CLI::App& app, Body& run);
void add_predict_command(CLI::App& app, Body& run);
void add_tour_command(CLI::App& app, Body& run);
void add_ops_command(CLI::App& app, Body& run);
void add_info_command(CLI::App& app, Body& run);
void add_advise_command(CLI::App& app, Body& run);

std::string add_engine_commands(CLI::App& app, Body& run) {
  add_profile_command(app, run);
  add_bench_command(app, run);
  add_compile_command(app, run);
  add_train_command(app, run);
  add_predict_command(app, run);
  add_tour_command(app, run);
  add_ops_command(app, run);
  add_info_command(app, run);
  add_advise_command(app, run);
  return "  epilogue tour                                  see it all on real input\n"
         "  epilogue profile mlp --dtype f32 --out traces  table and trace of a GeGLU MLP\n"
         "  epilogue profile linear --record-shapes --with-flops\n"
         "  epilogue compile mlp --norm rms --residual     what is fused, and why\n"
         "  epilogue train fashion-mnist --amp bf16        train, checkpoint, resume\n"
         "  epilogue predict runs/iris/model.safetensors new.csv -o predicted.csv\n"
         "  epilogue bench mlp --batch 2 --dtype f32       its modes beside oneDNN and PyTorch\n"
         "  epilogue advise bert.py                        what can be done for a PyTorch model\n"
         "  epilogue ops --format markdown                 the table of ops\n";
}

}  // namespace epilogue::tool
