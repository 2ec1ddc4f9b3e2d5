// SPDX-License-Identifier: Apache-2.0
// epilogue serve DIR: traces and pages over loopback, for Perfetto to fetch.
#include <fmt/format.h>
#include <httplib.h>
#include <pthread.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/printable.h"
#include "epilogue/base/error.h"
#include "explain/render/document.h"
#include "explain/render/json_numbers.h"
#include "explain/render/trace_folder.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"

namespace epilogue::tool {
namespace {

constexpr const char* kHost = "127.0.0.1";
constexpr const char* kPerfetto = "https://ui.perfetto.dev";
// The one port of loopback that Perfetto's page allows itself to fetch from.
constexpr int kPerfettoPort = 9001;
constexpr std::chrono::milliseconds kStopPoll{1};
constexpr int kNotFound = 404;
constexpr int kForbidden = 403;
constexpr int kMethodNotAllowed = 405;

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

// A site that points its own name at loopback must not read the traces: only requests that name
// this host are answered.
bool names_this_host(const httplib::Request& request, int port) {
  const std::string host = request.get_header_value("Host");
  return host == fmt::format("{}:{}", kHost, port) || host == fmt::format("localhost:{}", port);
}

void send_file(const trace::TraceFolder& folder, const httplib::Request& request,
               httplib::Response& response) {
  const auto path = folder.find(std::string_view(request.path).substr(1));
  if (!path) {
    response.status = kNotFound;
    return response.set_content("not found\n", "text/plain");
  }
  Result<MappedFile> file = MappedFile::open(path->string());
  if (!file) {
    response.status = kNotFound;
    return response.set_content("cannot be read\n", "text/plain");
  }
  const auto mapped = std::make_shared<MappedFile>(std::move(file).value());
  response.set_content_provider(
      mapped->bytes().size(), std::string(*trace::content_type(path->string())),
      [mapped](size_t offset, size_t length, httplib::DataSink& sink) {
        return sink.write(reinterpret_cast<const char*>(mapped->bytes().data()) + offset, length);
      });
}

void add_routes(httplib::Server& server, const trace::TraceFolder& folder, int port) {
  using Handled = httplib::Server::HandlerResponse;
  server.set_pre_routing_handler(
      [port](const httplib::Request& request, httplib::Response& response) {
        response.set_header("Access-Control-Allow-Origin", kPerfetto);
        response.set_header("X-Content-Type-Options", "nosniff");
        response.set_header("Cache-Control", "no-cache");
        const bool is_read = request.method == "GET" || request.method == "HEAD";
        if (is_read && names_this_host(request, port)) return Handled::Unhandled;
        response.status = is_read ? kForbidden : kMethodNotAllowed;
        if (!is_read) response.set_header("Allow", "GET, HEAD");
        return Handled::Handled;
      });
  server.Get("/.*", [&folder](const httplib::Request& request, httplib::Response& response) {
    send_file(folder, request, response);
  });
}

// The port that was bound.
int bind(httplib::Server& server, int wanted) {
  // The default lets two servers share a port, and requests go to either.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const int port = wanted == 0                          ? server.bind_to_any_port(kHost)
                   : server.bind_to_port(kHost, wanted) ? wanted
                                                        : -1;
  if (port <= 0)
    throw Error(fmt::format("port {} of {} cannot be used: taken, or not allowed; try --port N",
                            wanted, kHost));
  return port;
}

int run_serve_command(const ServeFlags& o) {
  const trace::TraceFolder folder(o.folder);
  // Before any thread starts: the threads inherit it, so that only sigwait() hears Ctrl-C.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);

  httplib::Server server;
  const int port = bind(server, o.port);
  add_routes(server, folder, port);
  print(listing(o.folder, port, folder.files()), o.format);
  std::fflush(stdout);
  if (port != kPerfettoPort)
    fmt::print(stderr, "epilogue: Perfetto's page fetches from port {} of loopback only\n",
               kPerfettoPort);

  std::atomic<bool> has_ended = false;
  std::thread stopper([&] {
    int signal = 0;
    sigwait(&stop_signals, &signal);
    // The signal may come before the server listens; stop() would then do nothing.
    while (!server.is_running() && !has_ended) std::this_thread::sleep_for(kStopPoll);
    server.stop();
  });
  const bool ended_well = server.listen_after_bind();
  has_ended = true;
  // Should listening have failed by itself, the waiting thread needs its signal.
  if (!ended_well) ::kill(::getpid(), SIGTERM);
  stopper.join();
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
