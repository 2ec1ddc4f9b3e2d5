// SPDX-License-Identifier: Apache-2.0
// epilogue serve DIR: traces and pages over loopback, for Perfetto to fetch.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "explain/render/document.h"
#include "explain/render/json_numbers.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/serve.h"

namespace epilogue::tool {
namespace {

// The one port of loopback that Perfetto's page allows itself to fetch from.
constexpr int kPerfettoPort = 9001;

struct ServeFlags {
  std::string folder;
  int port = kPerfettoPort;
  Format format = Format::text;
};

std::string file_url(int port, const std::string& file) {
  return fmt::format("http://{}:{}/{}", kHost, port, trace::percent_encoded(file));
}

bool is_page(const std::string& file) { return file.ends_with(".html"); }

trace::Document listing(const std::string& folder, int port,
                        const std::vector<std::string>& files) {
  std::string lines;
  auto array = nlohmann::ordered_json::array();
  for (const std::string& file : files) {
    const std::string url = file_url(port, file);
    const std::string perfetto_url = fmt::format("{}/#!/?url={}", kPerfetto, url);
    nlohmann::ordered_json entry = {{"file", file}, {"url", url}};
    if (!is_page(file)) entry["perfetto_url"] = perfetto_url;
    lines += (is_page(file) ? url : perfetto_url) + "\n";
    array.push_back(std::move(entry));
  }
  if (files.empty()) lines = fmt::format("{}: no *.json, *.json.gz or *.html\n", printable(folder));
  lines += fmt::format("Serving on http://{}:{}/ until Ctrl-C\n", kHost, port);
  trace::Document document = {trace::preformatted(lines)};
  document.json = [=] {
    const nlohmann::ordered_json json = {
        {"schema_version", kSchemaVersion}, {"folder", folder}, {"port", port}, {"files", array}};
    return trace::dump_json(json);
  };
  return document;
}

int run_serve_command(const ServeFlags& o) {
  const trace::TraceFolder folder(o.folder);
  const bool ended_well = serve(folder, o.port, [&](int port) {
    print(listing(o.folder, port, folder.files()), o.format);
    std::fflush(stdout);
    if (port != kPerfettoPort)
      fmt::print(stderr, "epilogue: Perfetto's page fetches from port {} of loopback only\n",
                 kPerfettoPort);
  });
  return ended_well ? kExitFine : kExitMisuse;
}

}  // namespace

void add_serve_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<ServeFlags>();
  CLI::App* serve = app.add_subcommand(
      "serve", "Serves the traces of a folder on loopback, with a Perfetto URL for each");
  serve->add_option("DIR", o->folder, "a folder with *.json, *.json.gz, *.html")
      ->required()
      ->option_text(" ");
  serve
      ->add_option("--port", o->port,
                   "port of 127.0.0.1; 0: any free one (Perfetto fetches from 9001 only)")
      ->check(whole_number(0, 65535))
      ->option_text("N [9001]");
  add_format(*serve, o->format);
  serve->footer("Example: epilogue serve traces");
  serve->callback([o, &run] { run = [o] { return run_serve_command(*o); }; });
}

}  // namespace epilogue::tool
