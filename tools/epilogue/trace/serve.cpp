// SPDX-License-Identifier: Apache-2.0
// The server alone: its library's headers cost more to compile than all of a subcommand's.
#include "tools/epilogue/trace/serve.h"

#include <fmt/format.h>
#include <httplib.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file.h"
#include "epilogue/base/error.h"

namespace epilogue::tool {
namespace {

constexpr std::chrono::milliseconds kStopPoll{1};
constexpr int kNotFound = 404;
constexpr int kForbidden = 403;
constexpr int kMethodNotAllowed = 405;

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

}  // namespace

bool serve(const trace::TraceFolder& folder, int wanted_port,
           const std::function<void(int port)>& on_bound) {
  // Before any thread starts: the threads inherit it, so that only sigwait() hears Ctrl-C.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);

  httplib::Server server;
  const int port = bind(server, wanted_port);
  add_routes(server, folder, port);
  on_bound(port);

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
  return ended_well;
}

}  // namespace epilogue::tool
