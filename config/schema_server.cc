// Names, bounds, help and aliases of the server's settings: addresses, keys,
// certificates, limits, the model repository, logs.
#include "config/settings_visitor.h"

namespace millrace::config {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kGiB = 1 << 30;
constexpr int64_t kDayMs = 24 * 3600 * 1000;

void VisitTls(ServerSettings& s, const SettingVisitor& visit) {
  visit({.name = "ssl_cert_file",
         .help = "certificate of the server and those that signed it, in PEM; "
                 "HTTP and gRPC then speak TLS only",
         .aliases = {{"ssl_certfile"}, {"tls_cert"}}},
        &s.ssl_cert_file);
  visit({.name = "ssl_key_file",
         .help = "private key of the certificate, in PEM, without a passphrase",
         .aliases = {{"ssl_keyfile"}, {"tls_key"}}},
        &s.ssl_key_file);
  visit({.name = "ssl_ca_file",
         .help = "authorities that sign certificates of clients, in PEM; "
                 "empty: clients need none",
         .aliases = {{"ssl_ca_certs"}}},
        &s.ssl_ca_file);
  visit({.name = "ssl_cert_reqs",
         .help = "whether clients must show a certificate where ssl_ca_file is "
                 "set; one that is shown is always checked (0, 1, 2: none, "
                 "optional, required)",
         .choices = {"none", "optional", "required", "0", "1", "2"}},
        &s.ssl_cert_reqs);
}

void VisitListening(ServerSettings& s, const SettingVisitor& visit) {
  visit({.name = "host",
         .help = "address to listen on; one that is not loopback needs an API "
                 "key or --no-auth",
         .aliases = {{"http_address"}}},
        &s.host);
  visit({.name = "http_port",
         .help = "HTTP port; 0: any free one, printed at start",
         .max = 65535,
         .aliases = {{"port"}, {"rest_port"}}},
        &s.http_port);
  visit({.name = "grpc_port",
         .help = "gRPC port; 0: any free one, printed at start; -1: no gRPC",
         .min = -1,
         .max = 65535},
        &s.grpc_port);
  visit({.name = "metrics_port",
         .help = "port of /metrics; -1: on the HTTP port",
         .min = -1,
         .max = 65535},
        &s.metrics_port);
  visit({.name = "management_port",
         .help = "port of management, metrics and debug routes, which the "
                 "other ports then refuse; -1: on the HTTP port, 0: any free "
                 "one",
         .min = -1,
         .max = 65535},
        &s.management_port);
  visit({.name = "management_host", .help = "address of management_port"},
        &s.management_host);
  visit({.name = "audit_log_file",
         .help = "file that gets a JSON line for each management call; empty: "
                 "the log"},
        &s.audit_log_file);
  visit({.name = "api_key",
         .help = "key that requests must bring; several: separated by commas",
         .secret = true},
        &s.api_key);
  visit({.name = "api_key_file", .help = "file with one key a line"},
        &s.api_key_file);
  visit({.name = "api_keys_file",
         .help = "YAML file of hashed keys with their scopes and of tenants "
                 "with their limits (`millrace keys create` makes entries); "
                 "read again when it changes"},
        &s.api_keys_file);
  visit({.name = "jwt_jwks_file",
         .help = "file of public keys (JWKS) of JSON Web Tokens that are taken "
                 "beside keys: RS256 and ES256; read again when it changes",
         .aliases = {{"jwks_file"}}},
        &s.jwt_jwks_file);
  visit({.name = "jwt_issuer",
         .help = "issuer (iss) that tokens must have; empty: any"},
        &s.jwt_issuer);
  visit({.name = "jwt_audience",
         .help = "audience (aud) that tokens must have; empty: any"},
        &s.jwt_audience);
  visit({.name = "no_auth",
         .help = "allow a host that is not loopback without any key"},
        &s.no_auth);
  VisitTls(s, visit);
  visit({.name = "cors_allow_origin",
         .help = "origin that browsers may call from, or *; empty: none"},
        &s.cors_allow_origin);
}

void VisitLimits(ServerSettings& s, const SettingVisitor& visit) {
  visit({.name = "http_max_input_size",
         .help = "largest request body, with what it reads of shared memory",
         .unit = Unit::kBytes,
         .min = kKiB,
         .max = 16 * kGiB,
         .aliases = {{"max_request_size"}, {"payload_limit"}}},
        &s.http_max_input_bytes);
  visit({.name = "http_max_header_size",
         .help = "largest request header",
         .unit = Unit::kBytes,
         .min = kKiB,
         .max = kKiB * kKiB},
        &s.http_max_header_bytes);
  visit({.name = "header_timeout",
         .help = "time a client has to send its request header, and in which "
                 "its body must bring 4 KiB for each second of it",
         .unit = Unit::kMilliseconds,
         .min = 1,
         .max = kDayMs},
        &s.header_timeout_ms);
  visit({.name = "idle_timeout",
         .help = "time a kept-alive connection may stay without a request",
         .unit = Unit::kMilliseconds,
         .min = 1,
         .max = kDayMs},
        &s.idle_timeout_ms);
  visit({.name = "write_timeout",
         .help = "time after which a client that reads nothing is dropped",
         .unit = Unit::kMilliseconds,
         .min = 1,
         .max = kDayMs},
        &s.write_timeout_ms);
  visit({.name = "max_connections",
         .help = "HTTP connections open at once; 64 more are kept for GET of "
                 "/metrics and /health, and for the ports of metrics and of "
                 "management",
         .min = 1,
         .max = 1'000'000},
        &s.max_connections);
  visit({.name = "max_sessions",
         .help = "WebSocket sessions open at once, of all models",
         .min = 1,
         .max = 1'000'000},
        &s.max_sessions);
  visit({.name = "session_idle_timeout",
         .help = "close a WebSocket session that sends no message for so long",
         .unit = Unit::kMilliseconds,
         .min = 10,
         .max = kDayMs},
        &s.session_idle_timeout_ms);
  visit({.name = "session_ping_interval",
         .help = "ask a WebSocket client that was silent for so long whether "
                 "it is there; one that does not answer for as long again is "
                 "gone",
         .unit = Unit::kMilliseconds,
         .min = 10,
         .max = kDayMs},
        &s.session_ping_interval_ms);
  visit({.name = "session_max_message_size",
         .help = "longest message of a WebSocket session, in bytes",
         .unit = Unit::kBytes,
         .min = kKiB,
         .max = kGiB},
        &s.session_max_message_bytes);
  visit({.name = "io_threads",
         .help = "threads that move bytes of sockets",
         .min = 1,
         .max = 64,
         .aliases = {{"threads_http"}, {"http_thread_count"}}},
        &s.io_threads);
  visit({.name = "handler_threads",
         .help = "threads for JSON, templates and tokens; 0: two, or a quarter "
                 "of the cores",
         .max = 1024},
        &s.handler_threads);
  visit({.name = "shutdown_timeout",
         .help = "time that running requests have to end after SIGTERM",
         .unit = Unit::kMilliseconds,
         .max = kDayMs,
         .aliases = {{"exit_timeout_secs"}, {"graceful_termination_timeout"}}},
        &s.shutdown_timeout_ms);
}

void VisitRepository(ServerSettings& s, const SettingVisitor& visit) {
  visit({.name = "model_repository",
         .help = "folder with models: NAME/VERSION/model.onnx (.pt2, .gguf) "
                 "or NAME.onnx, with NAME/config.pbtxt where there is one",
         .aliases = {{"model_store"}}},
        &s.model_repository);
  visit({.name = "model_control_mode",
         .help = "which models of the repository are loaded: none: all, at "
                 "start; poll: all, and what changes later; explicit: those "
                 "of load_model, and what clients ask for",
         .choices = {"none", "poll", "explicit"}},
        &s.model_control_mode);
  visit({.name = "allow_runtime_lora_updating",
         .help = "clients may load and unload LoRA adapters by path (POST "
                 "/v1/load_lora_adapter, /v1/unload_lora_adapter)"},
        &s.allow_runtime_lora_updating);
  visit({.name = "load_model",
         .help = "models to load at start in mode explicit, separated by "
                 "commas; *: all"},
        &s.load_model);
  visit({.name = "repository_poll_interval",
         .help = "time between two looks at the repository in mode poll",
         .unit = Unit::kMilliseconds,
         .min = 10,
         .max = kDayMs,
         .aliases = {{"repository_poll_secs"}}},
        &s.repository_poll_ms);
}

void VisitBatches(ServerSettings& s, const SettingVisitor& visit) {
  visit({.name = "batch_dir",
         .help = "folder where files and batches of clients are kept (POST "
                 "/v1/files, /v1/batches); a server that was stopped or killed "
                 "goes on with them; empty: none are taken"},
        &s.batch_dir);
  visit({.name = "batch_dir_max_size",
         .help = "most bytes of all files in batch_dir together",
         .unit = Unit::kBytes,
         .min = kKiB,
         .max = kGiB * kKiB},
        &s.batch_dir_max_bytes);
  visit({.name = "batch_concurrency",
         .help = "requests of batches that a model runs at once while no "
                 "other runs; 0: half of max_num_seqs",
         .max = 4096},
        &s.batch_concurrency);
}

void VisitLogs(ServerSettings& s, const SettingVisitor& visit) {
  visit({.name = "log_level",
         .help = "least important lines to log",
         .choices = {"debug", "info", "warning", "error", "off"}},
        &s.log_level);
  visit({.name = "log_format",
         .help = "form of the log's lines",
         .choices = {"text", "json"}},
        &s.log_format);
  visit({.name = "access_log", .help = "log one line for each request"},
        &s.access_log);
  visit(
      {.name = "shared_memory",
       .help = "clients on this machine may hand tensors over in POSIX shared "
               "memory"},
      &s.shared_memory);
  visit({.name = "disable_access_log_for_endpoints",
         .help = "paths whose requests are not logged, such as "
                 "/metrics,/health"},
        &s.disable_access_log_for_endpoints);
}

void VisitObservability(ServerSettings& s, const SettingVisitor& visit) {
  visit(
      {.name = "metrics_compat",
       .help = "servers by whose metric names /metrics shows its counts, "
               "too: vllm, triton, torchserve, llamacpp, separated by commas"},
      &s.metrics_compat);
  visit({.name = "otlp_endpoint",
         .help = "collector that takes a span of each request by OTLP/HTTP, "
                 "such as http://localhost:4318; empty: that of "
                 "OTEL_EXPORTER_OTLP_ENDPOINT, else none"},
        &s.otlp_endpoint);
}

}  // namespace

void VisitServerSettings(ServerSettings& s, const SettingVisitor& visit) {
  VisitListening(s, InGroup("addresses and keys", visit));
  VisitLimits(s, InGroup("limits, threads, shutdown", visit));
  VisitRepository(s, InGroup("model repository", visit));
  VisitBatches(s, InGroup("batches", visit));
  VisitLogs(s, InGroup("logs", visit));
  VisitObservability(s, InGroup("metrics, traces", visit));
}

}  // namespace millrace::config
