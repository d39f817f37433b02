#include "page/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/parse_number.h"
#include "observe/json_text.h"
#include "page/assets.h"
#include "page/reception.h"
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

// A request whose head is read already, and a client that takes the answer. Whatever follows the
// head is nobody's: requests have no content. Versions of httplib differ in what they ask of a
// stream, so nothing here says that it overrides something.
// NOLINTBEGIN(modernize-use-override)
class ReceivedRequest final : public httplib::Stream {
 public:
  ReceivedRequest(int client, std::string_view head, const std::atomic<bool>& stopping)
      : client_(client), rest_(head), stopping_(stopping) {}

  ssize_t read(char* to, std::size_t most) {
    const std::size_t count = rest_.copy(to, most);
    rest_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  // As much as the client takes; -1 when it takes nothing for a while, or the server ends.
  ssize_t write(const char* from, std::size_t most) {
    constexpr int kSlices = 50, kSliceMs = 100;
    for (int i = 0; i < kSlices && !stopping_; ++i) {
      const ssize_t sent = ::send(client_, from, most, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) return sent;
      pollfd ready{client_, POLLOUT, 0};
      ::poll(&ready, 1, kSliceMs);
    }
    return -1;
  }
  bool is_readable() const { return !rest_.empty(); }
  bool wait_readable() const { return is_readable(); }
  bool is_writable() const { return !stopping_; }
  bool wait_writable() const { return is_writable(); }
  void get_remote_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
  socket_t socket() const { return client_; }
  time_t duration() const { return 0; }

 private:
  const int client_;
  std::string_view rest_;
  const std::atomic<bool>& stopping_;
};
// NOLINTEND(modernize-use-override)

// httplib's own way to serve a connection lets a client that sends a byte now and then keep a
// thread for as long as it likes, and a line without end take all memory. So httplib only accepts
// connections, understands requests and words answers.
class Listener final : public httplib::Server {
 public:
  std::function<void(FileDescriptor)> admit;

  void answer(httplib::Stream& request) { process(*this, request); }

 private:
  bool process_and_close_socket(socket_t client) override {
    admit(FileDescriptor(client));
    return true;
  }

  // Later versions want to know both addresses.
  template <typename Self>
  static void process(Self& self, httplib::Stream& request) {
    bool closed = false;
    if constexpr (requires { self.process_request(request, true, closed, nullptr); })
      self.process_request(request, true, closed, nullptr);
    else
      self.process_request(request, "", 0, "", 0, true, closed, nullptr);
  }
};

std::unique_ptr<Listener> make_server() {
  const SamePipeSignal same;
  return std::make_unique<Listener>();
}

template <typename Integer>
Integer asked(const httplib::Request& request, const char* name, Integer otherwise) {
  Integer value = otherwise;
  if (request.has_param(name)) parse_number(request.get_param_value(name), value);
  return value;
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
    reception_.emplace(
        [this](FileDescriptor client, std::string head) {
          answer_soon(std::move(client), std::move(head));
        },
        kPatience);
    constexpr std::size_t kThreads = 4;
    pool_ = std::make_unique<httplib::ThreadPool>(kThreads);
    thread_ = std::thread([this] {
      server_->listen_after_bind();
      over_ = true;
    });
  }

  ~Impl() {
    // It must have begun to listen before it can stop.
    while (!server_->is_running() && !over_) std::this_thread::yield();
    stopping_ = true;
    server_->stop();
    thread_.join();
    reception_.reset();
    pool_->shutdown();
  }

  std::string url() const {
    const bool any = host_ == "0.0.0.0" || host_ == "::";
    std::string name = host_;
    if (char own[256] = {}; any && ::gethostname(own, sizeof own - 1) == 0) name = own;
    if (name.find(':') != std::string::npos) name = "[" + name + "]";
    return fmt::format("http://{}:{}/?token={}", name, port_, token_);
  }

 private:
  // A browser keeps connections that it may never use.
  static constexpr auto kPatience = std::chrono::seconds(5);

  void answer_soon(FileDescriptor client, std::string head) {
    const auto socket = std::make_shared<FileDescriptor>(std::move(client));
    pool_->enqueue([this, socket, head = std::move(head)] {
      ReceivedRequest request(socket->get(), head, stopping_);
      try {
        server_->answer(request);
      } catch (const std::exception&) {  // a request that httplib cannot understand
      }
      ::shutdown(socket->get(), SHUT_RDWR);
    });
  }

  // Requests are small, few and read only.
  void set_limits() {
    server_->admit = [this](FileDescriptor client) { reception_->admit(std::move(client)); };
    server_->new_task_queue = [] { return new httplib::ThreadPool(1); };
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
      cursor.evaluation_stride = asked<std::int64_t>(request, "evaluation_stride", 0);
      return text_of(run_.state(cursor));
    });
    get("/api/usage", "application/json", [this](const Request&) { return text_of(run_.usage()); });
    get("/api/timeline", "application/json", [this](const Request& request) {
      return text_of(run_.timeline(asked<std::int64_t>(request, "end", 0),
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

  std::unique_ptr<Listener> server_;
  const std::string token_, host_;
  int port_ = 0;
  std::mutex mutex_;
  WatchedRun run_;
  std::atomic<bool> over_ = false, stopping_ = false;
  std::unique_ptr<httplib::ThreadPool> pool_;  // answers
  std::optional<Reception> reception_;
  std::thread thread_;  // accepts
};

PageServer::PageServer(const std::string& option, const PageAddress& address,
                       const std::filesystem::path& folder)
    : impl_(std::make_unique<Impl>(option, address, folder)) {}
PageServer::~PageServer() = default;
std::string PageServer::url() const { return impl_->url(); }

}  // namespace skein
