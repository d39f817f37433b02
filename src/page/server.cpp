#include "page/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/parse_number.h"
#include "page/assets.h"
#include "page/self_contained.h"
#include "page/watched_run.h"
#include "skein/error.h"

namespace skein {
namespace {

// Keeps signals from the threads that are started meanwhile; a peer that hangs up is an error of
// that connection only, since SIGPIPE is one of them.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

// httplib ignores SIGPIPE for the whole process, which workers would inherit.
class SamePipeSignal {
 public:
  SamePipeSignal() { ::sigaction(SIGPIPE, nullptr, &before_); }
  ~SamePipeSignal() { ::sigaction(SIGPIPE, &before_, nullptr); }
  SamePipeSignal(const SamePipeSignal&) = delete;
  SamePipeSignal& operator=(const SamePipeSignal&) = delete;

 private:
  struct sigaction before_ {};
};

std::unique_ptr<httplib::Server> make_server() {
  const SamePipeSignal same;
  return std::make_unique<httplib::Server>();
}

template <typename Integer>
Integer asked(const httplib::Request& request, const char* name, Integer otherwise) {
  Integer value = otherwise;
  if (request.has_param(name)) parse_number(request.get_param_value(name), value);
  return value;
}

std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string why_no_page() { return std::string(plots_missing()); }

class PageServer::Impl {
 public:
  Impl(const std::string& option, const PageAddress& address, const std::filesystem::path& folder)
      : server_(make_server()), token_(fresh_token()), host_(address.host), run_(folder) {
    if (const std::string why = why_no_page(); !why.empty())
      throw ConfigError(fmt::format("{}: {}", option, why));
    set_limits();
    set_answers();
    errno = 0;
    port_ = address.port;
    const bool bound = address.port == 0 ? (port_ = server_->bind_to_any_port(address.host)) > 0
                                         : server_->bind_to_port(address.host, address.port);
    if (!bound)
      throw ConfigError(fmt::format(
          "{} {}:{}: cannot listen there{}; expected a port that is free, or 0 for any", option,
          address.host, address.port, errno == 0 ? "" : fmt::format(": {}", std::strerror(errno))));
    const WithoutSignals without;
    thread_ = std::thread([this] {
      server_->listen_after_bind();
      over_ = true;
    });
  }

  ~Impl() {
    // It must have begun to listen before it can stop.
    while (!server_->is_running() && !over_) std::this_thread::yield();
    server_->stop();
    thread_.join();
  }

  std::string url() const {
    const bool any = host_ == "0.0.0.0" || host_ == "::";
    std::string name = host_;
    if (char own[256] = {}; any && ::gethostname(own, sizeof own - 1) == 0) name = own;
    if (name.find(':') != std::string::npos) name = "[" + name + "]";
    return fmt::format("http://{}:{}/?token={}", name, port_, token_);
  }

 private:
  // Requests are small, few and read only; a browser keeps connections that it may never use.
  void set_limits() {
    constexpr std::size_t kThreads = 4;
    server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_->set_keep_alive_max_count(1);
    server_->set_keep_alive_timeout(1);
    server_->set_read_timeout(1);
    server_->set_write_timeout(2);
    server_->set_payload_max_length(0);
    server_->set_tcp_nodelay(true);
    // httplib's own would share a port with another server of the same user.
    server_->set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      ::fcntl(socket, F_SETFD, FD_CLOEXEC);
    });
    server_->set_default_headers(
        {{"Cache-Control", "no-store"},
         {"Referrer-Policy", "no-referrer"},
         {"X-Content-Type-Options", "nosniff"},
         {"Content-Security-Policy",
          "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
          "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'"}});
  }

  void set_answers() {
    using httplib::Request;
    using httplib::Response;
    server_->set_pre_routing_handler([this](const Request& request, Response& response) {
      const int refused = refusal(request);
      if (refused == 0) return httplib::Server::HandlerResponse::Unhandled;
      response.status = refused;
      response.set_content(refused == 401 ? "this page needs the token that skein has printed\n"
                                          : "this page can only be read\n",
                           "text/plain");
      return httplib::Server::HandlerResponse::Handled;
    });
    server_->Get("/", [](const Request&, Response& response) {
      response.set_content(self_contained("live.html", nlohmann::json::object()),
                           "text/html; charset=utf-8");
    });
    get("/api/state", "application/json", [this](const Request& request) {
      WatchedRun::Cursor cursor;
      cursor.generation = asked<std::int64_t>(request, "generation", -1);
      cursor.stride = asked<std::int64_t>(request, "stride", 0);
      cursor.steps = asked<std::size_t>(request, "steps", 0);
      cursor.evaluations = asked<std::size_t>(request, "evaluations", 0);
      return dumped(run_.state(cursor));
    });
    get("/api/usage", "application/json", [this](const Request&) { return dumped(run_.usage()); });
    get("/api/timeline", "application/json", [this](const Request& request) {
      return dumped(run_.timeline(asked<std::int64_t>(request, "end", 0),
                                  asked<std::int64_t>(request, "width", 0)));
    });
    get("/metrics", "text/plain; version=0.0.4; charset=utf-8",
        [this](const Request&) { return run_.prometheus(); });
  }

  // One at a time: who asks brings the run up to date.
  template <typename Answer>
  void get(const char* path, const char* type, Answer answer) {
    server_->Get(
        path, [this, type, answer](const httplib::Request& request, httplib::Response& response) {
          std::string text;
          {
            const std::lock_guard lock(mutex_);
            run_.refresh();
            text = answer(request);
          }
          response.set_content(text, type);
        });
  }

  int refusal(const httplib::Request& request) const {
    const std::string header = request.get_header_value("Authorization");
    const std::string given = request.has_param("token") ? request.get_param_value("token")
                                                         : std::string(bearer_token(header));
    if (!same_token(token_, given)) return 401;
    return request.method == "GET" ? 0 : 405;
  }

  std::unique_ptr<httplib::Server> server_;
  const std::string token_, host_;
  int port_ = 0;
  std::mutex mutex_;
  WatchedRun run_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

PageServer::PageServer(const std::string& option, const PageAddress& address,
                       const std::filesystem::path& folder)
    : impl_(std::make_unique<Impl>(option, address, folder)) {}
PageServer::~PageServer() = default;
std::string PageServer::url() const { return impl_->url(); }

}  // namespace skein
