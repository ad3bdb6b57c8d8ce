// Sockets, I/O threads and the two stages of stopping. Each thread has an
// io_context of its own, so that a connection lives on one thread and needs no
// strand.
#include "server/http/listener.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/base/log.h"
#include "config/topology.h"
#include "server/http/access.h"
#include "server/http/batch_executor.h"
#include "server/http/detail/session.h"
#include "server/http/detail/tcp_conn.h"
#include "server/http/detail/tls_conn.h"
#include "server/http/router.h"
#include "server/http/site.h"
#include "server/http/torchserve_routes.h"

namespace millrace::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Beyond max_connections so many are there for scrapers and probes, others get
// 503 on them; the rest is closed at once. The ports of metrics and management
// have as many that the port of inference cannot take.
constexpr int64_t kReserve = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

struct IoThread {
  IoThread() : work(context.get_executor()) {}

  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work;
  http::SessionGroup group;
  std::thread thread;
};

std::vector<std::string_view> PatternsOf() {
  std::vector<std::string_view> patterns;
  for (const http::Route& route : http::ServingRoutes()) {
    patterns.push_back(route.pattern);
  }
  for (const http::Route& route : http::MetricsRoutes()) {
    patterns.push_back(route.pattern);
  }
  for (const auto& routes : {http::TorchServeInferenceRoutes(),
                             http::TorchServeManagementRoutes()}) {
    for (const http::Route& route : routes) patterns.push_back(route.pattern);
  }
  return patterns;
}

void Append(std::span<const http::Route> more,
            std::vector<http::Route>& routes) {
  routes.insert(routes.end(), more.begin(), more.end());
}

// The routes of the port of inference, or of that of management, where there
// are two. Both have /health and /console.
std::vector<http::Route> RoutesOf(bool of_management) {
  std::vector<http::Route> routes;
  for (const http::Route& route : http::ServingRoutes()) {
    if (route.is_public && !http::IsInternal(http::AccessOf(route))) {
      if (!of_management || route.pattern.starts_with("/health") ||
          route.pattern.starts_with("/console")) {
        routes.push_back(route);
      }
    } else if (http::IsInternal(http::AccessOf(route)) == of_management) {
      routes.push_back(route);
    }
  }
  return routes;
}

StatusOr<tcp::endpoint> Resolve(const std::string& host, int64_t port) {
  error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  if (!ec) return tcp::endpoint(address, static_cast<uint16_t>(port));
  asio::io_context context;
  tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
  if (ec || found.empty()) {
    return FailedPrecondition("host '" + host +
                              "' is no address and cannot "
                              "be resolved (" +
                              ec.message() +
                              "); use one such as 127.0.0.1 or 0.0.0.0")
        .At("host");
  }
  return found.begin()->endpoint();
}

// Accepts on one port and deals connections out to the I/O threads in turn.
// Lives on the first I/O thread after Open.
class Acceptor {
 public:
  Acceptor(const http::Site& site, std::vector<std::unique_ptr<IoThread>>& io,
           std::span<const http::Route> routes, int64_t max_connections)
      : site_(site),
        io_(io),
        routes_(routes),
        max_connections_(max_connections),
        acceptor_(io.front()->context),
        pause_(io.front()->context) {}

  Status Open(const std::string& host, int64_t port, const char* setting) {
    ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(host, port));
    error_code ec;
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) {
      return FailedPrecondition("cannot listen on " + host + ":" +
                                std::to_string(port) + " (" + ec.message() +
                                "); choose another " + setting +
                                " or stop what uses it")
          .At(setting);
    }
    port_ = acceptor_.local_endpoint(ec).port();
    Accept();
    return OkStatus();
  }

  // Connections that the kernel has made already are served: closing would
  // reset them, and their clients hold them for accepted.
  void Close() {
    error_code ec;
    acceptor_.non_blocking(true, ec);
    while (!ec) {
      IoThread& io = *io_[next_++ % io_.size()];
      tcp::socket socket(io.context);
      acceptor_.accept(socket, ec);
      if (!ec) Take(io, std::move(socket));
    }
    acceptor_.close(ec);
    pause_.cancel();
  }

  int port() const { return port_; }

 private:
  void Accept() {
    IoThread& io = *io_[next_++ % io_.size()];
    acceptor_.async_accept(
        io.context, [this, &io](const error_code& ec, tcp::socket socket) {
          if (!ec) Take(io, std::move(socket));
          if (!acceptor_.is_open()) return;
          if (ec && ec != asio::error::connection_aborted) {
            // Out of descriptors, most likely: let some connections end.
            LogWarning("accept failed", {{"error", ec.message()}});
            pause_.expires_after(kAcceptPause);
            pause_.async_wait([this](const error_code&) {
              if (acceptor_.is_open()) Accept();
            });
            return;
          }
          Accept();
        });
  }

  void Take(IoThread& io, tcp::socket socket) {
    const int64_t open =
        site_.num_connections.fetch_add(1, std::memory_order_relaxed) + 1;
    if (open > max_connections_ + kReserve) {
      site_.num_connections.fetch_sub(1, std::memory_order_relaxed);
      site_.observer.connections_refused.Add();
      return;  // closes
    }
    asio::post(io.context, [this, &io, socket = std::move(socket),
                            full = open > max_connections_]() mutable {
      std::unique_ptr<http::Conn> conn = MakeConn(std::move(socket));
      if (conn == nullptr) {
        site_.num_connections.fetch_sub(1, std::memory_order_relaxed);
      } else {
        http::Session::Start(io.group, std::move(conn), routes_, full);
      }
    });
  }

  std::unique_ptr<http::Conn> MakeConn(tcp::socket socket) {
    Certificates* const certificates = site_.services.certificates;
    if (certificates == nullptr) return http::MakeTcpConn(std::move(socket));
    return http::MakeTlsConn(
        std::move(socket), certificates->Current(),
        std::chrono::milliseconds(site_.settings.header_timeout_ms));
  }

  const http::Site& site_;
  std::vector<std::unique_ptr<IoThread>>& io_;
  const std::span<const http::Route> routes_;
  const int64_t max_connections_;  // of all ports together
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  size_t next_ = 0;
  int port_ = 0;
};

class Server final : public HttpServer {
 public:
  Server(const config::ServerSettings& settings, const HttpServices& services)
      : shared_site_(
            std::make_shared<http::Site>(settings, services, PatternsOf())),
        site_(*shared_site_) {
    const int64_t num_threads = std::max<int64_t>(settings.io_threads, 1);
    for (int64_t i = 0; i < num_threads; ++i) {
      io_.push_back(std::make_unique<IoThread>());
      io_.back()->group.site = &site_;
      io_.back()->group.context = &io_.back()->context;
    }
  }

  ~Server() override { Stop(std::chrono::steady_clock::now()); }

  Status Open() {
    const config::ServerSettings& settings = site_.settings;
    const int64_t most = settings.max_connections;
    const bool apart = settings.management_port >= 0;
    const bool torchserve = site_.services.torchserve != nullptr;
    if (torchserve) Append(http::TorchServeInferenceRoutes(), serving_routes_);
    if (torchserve) {
      Append(http::TorchServeManagementRoutes(),
             apart ? management_routes_ : serving_routes_);
    }
    if (apart) {
      Append(RoutesOf(false), serving_routes_);
      Append(RoutesOf(true), management_routes_);
      management_.emplace(site_, io_, management_routes_, most + 2 * kReserve);
      RETURN_IF_ERROR(management_->Open(settings.management_host,
                                        settings.management_port,
                                        "management_port"));
    }
    if (!apart) Append(http::ServingRoutes(), serving_routes_);
    main_.emplace(site_, io_, serving_routes_, most);
    RETURN_IF_ERROR(
        main_->Open(settings.host, settings.http_port, "http_port"));
    if (settings.metrics_port >= 0) {
      metrics_.emplace(
          site_, io_,
          torchserve ? http::TorchServeMetricsRoutes() : http::MetricsRoutes(),
          most + 2 * kReserve);
      RETURN_IF_ERROR(
          metrics_->Open(settings.host, settings.metrics_port, "metrics_port"));
    }
    for (size_t i = 0; i < io_.size(); ++i) {
      IoThread* io = io_[i].get();
      io->thread = std::thread([io, i] {
        // Not pinned: a thread that mostly sleeps may run where there is room.
        const Status named =
            config::PinThisThread({}, "http-io-" + std::to_string(i));
        if (!named.ok()) LogDebug("thread not named");
        io->context.run();
      });
    }
    if (site_.services.batches != nullptr) {
      site_.services.batches->Start(http::MakeBatchExecutor(shared_site_));
    }
    return OkStatus();
  }

  int port() const override { return main_->port(); }
  int metrics_port() const override {
    return metrics_.has_value() ? metrics_->port() : main_->port();
  }

  int management_port() const override {
    return management_.has_value() ? management_->port() : main_->port();
  }

  void Leave() override {
    site_.leaving.store(true, std::memory_order_relaxed);
  }

  void StopAccepting() override {
    Leave();
    if (accepting_.exchange(false)) {
      asio::post(io_.front()->context, [this] {
        if (main_.has_value()) main_->Close();
        if (metrics_.has_value()) metrics_->Close();
        if (management_.has_value()) management_->Close();
      });
    }
    for (const std::unique_ptr<IoThread>& io : io_) {
      asio::post(io->context, [&group = io->group] {
        group.draining = true;
        for (http::Session* session : group.sessions) session->Drain();
      });
    }
  }

  void Stop(std::chrono::steady_clock::time_point deadline) override {
    if (stopped_.exchange(true)) return;
    StopAccepting();
    // Whoever is still there at the deadline is cut off. Polled, for this
    // happens once in a process' life.
    while (site_.num_connections.load(std::memory_order_relaxed) > 0 &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (const std::unique_ptr<IoThread>& io : io_) {
      asio::post(io->context, [&group = io->group] {
        for (http::Session* session : group.sessions) session->Abort();
      });
      io->work.reset();
    }
    for (const std::unique_ptr<IoThread>& io : io_) {
      if (io->thread.joinable()) io->thread.join();
    }
  }

 private:
  const std::shared_ptr<http::Site> shared_site_;
  const http::Site& site_;
  // The latter where management has a port of its own.
  std::vector<http::Route> serving_routes_, management_routes_;
  std::vector<std::unique_ptr<IoThread>> io_;
  std::optional<Acceptor> main_;  // after io_: its sockets live there
  std::optional<Acceptor> metrics_;
  std::optional<Acceptor> management_;
  std::atomic<bool> accepting_{true};
  std::atomic<bool> stopped_{false};
};

}  // namespace

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const config::ServerSettings& settings, const HttpServices& services) {
  auto server = std::make_unique<Server>(settings, services);
  RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace millrace::server
