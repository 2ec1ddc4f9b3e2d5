// SPDX-License-Identifier: Apache-2.0
#include "bench/torch_peer.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "bench/peer_process.h"
#include "bench/torch_script.h"
#include "epilogue/io.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

// Importing PyTorch from a cold disk, or a slow call of a large model.
constexpr int kAnswerMs = 300'000;
// max-autotune compiles and times many kernels.
constexpr int kCompileMs = 1'200'000;

// A folder of its own under the system's temporary one; removed with all that it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "epilogue-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw Error("[bench] " + pattern + ": " + std::strerror(errno));
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void add(NamedTensors& list, const std::string& name, const Tensor& t) {
  if (t.defined()) list.emplace_back(name, t);
}

// The tensors under the names that torch_peer.py expects.
NamedTensors tensors_of(const std::string& kind, const Model& model) {
  NamedTensors list;
  if (kind == "matmul-add") {
    list.emplace_back("b", t(model.stages[0].weight));
    list.emplace_back("c", model.stages[0].addend);
    return list;
  }
  add(list, "norm.weight", model.norm_weight);
  add(list, "norm.bias", model.norm_bias);
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const Stage& stage = model.stages[i];
    const std::string prefix = std::to_string(i);
    add(list, prefix + ".weight", stage.weight);
    add(list, prefix + ".bias", stage.bias);
    add(list, prefix + ".up.weight", stage.up);
    add(list, prefix + ".up.bias", stage.up_bias);
  }
  return list;
}

nlohmann::json spec_of(const std::string& kind, const Model& model) {
  nlohmann::json activations = nlohmann::json::array();
  for (const Stage& stage : model.stages)
    activations.push_back(stage.activation ? nlohmann::json(nn::activation_name(*stage.activation))
                                           : nlohmann::json());
  return {{"kind", kind},
          {"norm", nn::norm_name(model.norm)},
          {"norm_eps", model.norm_eps},
          {"residual", model.residual},
          {"activations", activations}};
}

}  // namespace

struct TorchPeer::State {
  // One request and its answer; an answer with "error" is a failure.
  Result<nlohmann::json> ask(const nlohmann::json& request, int timeout_ms) {
    auto line = process->ask(json_text(request), timeout_ms);
    if (!line) return Failure{line.failure().code, line.failure().message + last_words()};
    auto answer = parse_json(line.value());
    if (!answer.is_object())
      return Failure{FailureCode::peer_error, "expected JSON, got " + printable(line.value())};
    if (answer.contains("error"))
      return Failure{FailureCode::peer_error, printable(answer.value("error", ""), 300)};
    return answer;
  }
  // Shared by prepare() and prepare_step(): their file's tensors, in the order of
  // `names`.
  struct Reply {
    std::vector<Tensor> tensors;
    std::optional<int64_t> peak_bytes;
  };
  Result<Reply> prepare(nlohmann::json request, const std::vector<std::string>& names) {
    const std::string path = folder.file("results.safetensors");
    request["out"] = path;
    auto answer = ask(request, kCompileMs);
    if (!answer) return answer.failure();
    auto file = SafetensorsFile::open(path);
    if (!file) return file.failure();
    Reply reply;
    for (const std::string& name : names) {
      auto tensor = file.value().tensor(name);
      if (!tensor) return tensor.failure();
      reply.tensors.push_back(clone(tensor.value()));
    }
    const nlohmann::json& peak = answer.value()["peak_intermediate_bytes"];
    if (peak.is_number_integer()) reply.peak_bytes = peak.get<int64_t>();
    return reply;
  }
  // The process's last lines on stderr.
  std::string last_words() const {
    const auto log = read_file(folder.file("stderr.txt"));
    if (!log || log.value().empty()) return "";
    const std::string& text = log.value();
    const size_t end = text.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const size_t begin = text.rfind('\n', end);
    return ": " + printable(text.substr(begin == std::string::npos ? 0 : begin + 1,
                                        end - (begin == std::string::npos ? 0 : begin + 1) + 1),
                            300);
  }

  TemporaryFolder folder;  // outlives the process
  std::optional<PeerProcess> process;
  std::string version;
  std::vector<std::string> parameters;  // names in the model's file
};

TorchPeer::TorchPeer(std::unique_ptr<State> state) : state_(std::move(state)) {}
TorchPeer::TorchPeer(TorchPeer&&) noexcept = default;
TorchPeer::~TorchPeer() = default;
const std::string& TorchPeer::version() const { return state_->version; }

Result<TorchPeer> TorchPeer::start(const std::string& python, int threads) {
  auto state = std::make_unique<State>();
  const std::string script = state->folder.file("torch_peer.py");
  if (auto written = write_file(script, torch_script()); !written) return written.failure();
  auto process = PeerProcess::start({python, script}, state->folder.file("stderr.txt"));
  if (!process) return process.failure();
  state->process.emplace(std::move(process).value());
  auto answer = state->ask({{"do", "start"}, {"threads", threads}}, kAnswerMs);
  if (!answer) return answer.failure();
  state->version = answer.value().value("version", "");
  return TorchPeer(std::move(state));
}

Status TorchPeer::load(const std::string& kind, const Model& model, const Tensor& x,
                       const Tensor& target) {
  const std::string path = state_->folder.file("model.safetensors");
  NamedTensors tensors = tensors_of(kind, model);
  state_->parameters.clear();
  for (const auto& [name, tensor] : tensors) state_->parameters.push_back(name);
  add(tensors, "input", x);
  add(tensors, "target", target);
  if (auto saved = save_safetensors(path, tensors); !saved) return saved.failure();
  auto answer =
      state_->ask({{"do", "load"}, {"file", path}, {"model", spec_of(kind, model)}}, kAnswerMs);
  if (!answer) return answer.failure();
  return ok_status();
}

Result<TorchPeer::Prepared> TorchPeer::prepare(const std::string& mode) {
  auto reply = state_->prepare({{"do", "prepare"}, {"mode", mode}}, {"output"});
  if (!reply) return reply.failure();
  return Prepared{reply.value().tensors[0], reply.value().peak_bytes};
}

Result<TorchPeer::PreparedStep> TorchPeer::prepare_step(const std::string& mode, double lr) {
  auto reply =
      state_->prepare({{"do", "prepare_step"}, {"mode", mode}, {"lr", lr}}, state_->parameters);
  if (!reply) return reply.failure();
  return PreparedStep{reply.value().tensors, reply.value().peak_bytes};
}

std::vector<double> TorchPeer::run(const std::string& mode, const Block& block) {
  auto answer = state_->ask({{"do", "run"},
                             {"mode", mode},
                             {"calls", block.calls},
                             {"samples", block.samples},
                             {"dropped", block.dropped}},
                            kAnswerMs);
  if (!answer) throw Error("[pytorch] " + answer.failure().message);
  return answer.value().at("ns").get<std::vector<double>>();
}

}  // namespace epilogue::bench
