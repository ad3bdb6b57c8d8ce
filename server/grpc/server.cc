// gRPC shares ports by default (SO_REUSEPORT): a second server on a busy port
// would start and take half of the calls. That is switched off here. gRPC does
// not say why a port was refused, so a plain socket is bound once more to learn
// the reason.
#include "server/grpc/server.h"

#include <absl/synchronization/mutex.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "config/base/log.h"
#include "config/base/mutex.h"
#include "server/grpc/credentials.h"
#include "server/grpc/oip_service.h"
#include "server/grpc/torchserve_services.h"
#include "server/grpc/unknown_calls.h"

namespace millrace::server {
namespace {

// A client that vanished without a word is found out after a minute or so.
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMaxMetadataBytes = 16 << 10;
// Messages of so many times the longest one may be in memory together, as over
// HTTP; then gRPC ends calls and idle connections of its own choice. Its
// connections take from the same room, which is never less than this.
constexpr size_t kMaxMessagesInMemory = 8;
constexpr size_t kLeastQuotaBytes = 16 << 20;

void SetUpLibraryOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function(+[](gpr_log_func_args* args) {
      LogDebug("gRPC library", {{"message", args->message}});
    });
    // Debian builds Abseil so that each lock that gRPC takes looks for cycles
    // among all locks, a search for those who work on gRPC.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    // A damaged message is the client's affair: it must not fill our stderr.
    google::protobuf::SetLogHandler(+[](google::protobuf::LogLevel, const char*,
                                        int, const std::string& message) {
      LogDebug("protobuf library", {{"message", message}});
    });
    ::grpc::EnableDefaultHealthCheckService(true);
    ::grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

std::string Address(const std::string& host, int64_t port) {
  const bool is_v6 = host.find(':') != std::string::npos && host[0] != '[';
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// Why a socket cannot be bound there, in the words of the system.
std::string WhyNoPort(const std::string& host, int64_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  std::string why = "gRPC refused the address";
  for (addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    if (fd < 0) continue;
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 1) != 0) {
      why = std::strerror(errno);
    }
    close(fd);
  }
  freeaddrinfo(found);
  return why;
}

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(const config::ServerSettings& settings,
                 const GrpcServices& services)
      : reader_(services.auth, services.traces, services.clock,
                settings.management_port >= 0),
        management_reader_(services.auth, services.traces, services.clock,
                           /*management_apart=*/false),
        recorder_(services.metrics, services.traces, settings.access_log),
        service_(MakeOipService(PartsOf(services), &reader_, &streams_)),
        unknown_calls_(MakeUnknownCalls(&reader_, &recorder_)),
        unknown_management_(MakeUnknownCalls(&management_reader_, &recorder_)),
        credentials_(MakeCredentials(services.certificates)),
        management_credentials_(MakeCredentials(services.certificates)) {
    if (services.torchserve == nullptr) return;
    torchserve_inference_ = MakeTorchServeInference(
        PartsOf(services), services.torchserve, &reader_, &streams_);
    torchserve_management_ = MakeTorchServeManagement(
        PartsOf(services), services.torchserve, services.torchserve_management,
        &management_reader_);
    management_port_wanted_ =
        services.torchserve->options().grpc_management_port;
  }

  ~GrpcServerImpl() override { Stop(std::chrono::steady_clock::now()); }

  Status Listen(const config::ServerSettings& settings,
                ServerState initial_state) {
    SetUpLibraryOnce();
    ::grpc::ServerBuilder builder;
    Configure(builder, settings);
    builder.AddListeningPort(Address(settings.host, settings.grpc_port),
                             credentials_, &port_);
    builder.RegisterService(service_.get());
    if (torchserve_inference_ != nullptr) {
      builder.RegisterService(torchserve_inference_.get());
    }
    builder.RegisterCallbackGenericService(unknown_calls_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return CannotListen(settings.host, settings.grpc_port,
                          "choose another grpc_port (0 takes a free one, -1 "
                          "turns gRPC off)")
          .At("grpc_port");
    }
    SetHealth(initial_state == ServerState::kReady);
    return torchserve_management_ == nullptr ? OkStatus()
                                             : ListenForManagement(settings);
  }

  void SetReady() override {
    MutexLock lock(mu_);
    if (accepting_) SetHealth(true);
  }

  int port() const override { return port_; }

  void StopAccepting() override {
    {
      MutexLock lock(mu_);
      accepting_ = false;
      SetHealth(false);
    }
    streams_.Drain();
  }

  void Stop(std::chrono::steady_clock::time_point deadline) override {
    {
      MutexLock lock(mu_);
      if (server_ == nullptr || stopped_) return;
      stopped_ = true;
    }
    StopAccepting();
    const auto left = deadline - std::chrono::steady_clock::now();
    const auto until =
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
    for (::grpc::Server* server : {management_server_.get(), server_.get()}) {
      if (server == nullptr) continue;
      server->Shutdown(until);
      server->Wait();
    }
  }

 private:
  InferParts PartsOf(const GrpcServices& services) {
    return {.repository = services.repository,
            .pool = services.pool,
            .recorder = &recorder_,
            .clock = services.clock,
            .state = services.state,
            .audit = services.audit,
            .auth = services.auth};
  }

  static void Configure(::grpc::ServerBuilder& builder,
                        const config::ServerSettings& settings) {
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                               kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
    builder.AddChannelArgument(
        GRPC_ARG_MAX_CONCURRENT_STREAMS,
        static_cast<int>(std::min<int64_t>(settings.max_connections, INT_MAX)));
    const auto longest = static_cast<size_t>(
        std::min<int64_t>(settings.http_max_input_bytes, INT_MAX));
    builder.SetMaxReceiveMessageSize(static_cast<int>(longest));
    ::grpc::ResourceQuota quota("messages");
    quota.Resize(std::max(kMaxMessagesInMemory * longest, kLeastQuotaBytes));
    builder.SetResourceQuota(quota);
  }

  // TorchServe's management, where the management of REST is.
  Status ListenForManagement(const config::ServerSettings& settings) {
    const std::string& host = settings.management_port >= 0
                                  ? settings.management_host
                                  : settings.host;
    ::grpc::ServerBuilder builder;
    Configure(builder, settings);
    builder.AddListeningPort(Address(host, management_port_wanted_),
                             management_credentials_, &management_port_);
    builder.RegisterService(torchserve_management_.get());
    builder.RegisterCallbackGenericService(unknown_management_.get());
    management_server_ = builder.BuildAndStart();
    if (management_server_ == nullptr || management_port_ == 0) {
      return CannotListen(host, management_port_wanted_,
                          "choose another grpc_management_port (0 takes a free "
                          "one)")
          .At("grpc_management_port");
    }
    LogInfo("TorchServe's management over gRPC",
            {{"host", host}, {"port", management_port_}});
    return OkStatus();
  }

  static Status CannotListen(const std::string& host, int64_t port,
                             const std::string& remedy) {
    return FailedPrecondition("cannot listen on " + Address(host, port) +
                              " for gRPC: " + WhyNoPort(host, port) + "; " +
                              remedy);
  }

  void SetHealth(bool serving) {
    auto* health = server_ ? server_->GetHealthCheckService() : nullptr;
    if (health == nullptr) return;
    health->SetServingStatus("", serving);
    health->SetServingStatus(kOipServiceName, serving);
  }

  CallReader reader_;
  CallReader management_reader_;
  Recorder recorder_;
  InferStreams streams_;
  const std::unique_ptr<::grpc::Service> service_;
  const std::unique_ptr<::grpc::CallbackGenericService> unknown_calls_;
  const std::unique_ptr<::grpc::CallbackGenericService> unknown_management_;
  // Null: another profile than TorchServe's.
  std::unique_ptr<::grpc::Service> torchserve_inference_;
  std::unique_ptr<::grpc::Service> torchserve_management_;
  int64_t management_port_wanted_ = 0;
  // Each gives its server the certificate once, so that two cannot share one.
  const std::shared_ptr<::grpc::ServerCredentials> credentials_;
  const std::shared_ptr<::grpc::ServerCredentials> management_credentials_;
  int port_ = 0;
  int management_port_ = 0;
  Mutex mu_;
  bool accepting_ GUARDED_BY(mu_) = true;
  bool stopped_ GUARDED_BY(mu_) = false;
  // Stop before what they serve.
  std::unique_ptr<::grpc::Server> server_;
  std::unique_ptr<::grpc::Server> management_server_;
};

}  // namespace

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const config::ServerSettings& settings, const GrpcServices& services) {
  auto server = std::make_unique<GrpcServerImpl>(settings, services);
  RETURN_IF_ERROR(server->Listen(settings, services.repository->state()));
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace millrace::server
