// Every setting, as plain structs. Defaults stand here alone: those that
// classes of other folders share are constants of their struct. One visitor
// (VisitSettings in schema.cc) gives each its name, unit, bounds and help; the
// YAML reader, MILLRACE_* variables, flags, --help and the printed effective
// configuration are all made from it, so a setting is declared in two places
// only: here and there.
//
// Names and defaults follow what users of Triton, vLLM, llama.cpp and
// TorchServe already know. Immutable once loaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace millrace::config {

struct TaskSettings;  // task_settings.h

struct ServerSettings {
  static constexpr int64_t kMaxInputBytes = int64_t{64} << 20;
  static constexpr int64_t kMaxHeaderBytes = 16 << 10;

  std::string host = "127.0.0.1";
  int64_t http_port = 8000;   // 0: any free port, printed at start
  int64_t grpc_port = 8001;   // 0: any free port; -1: no gRPC
  int64_t metrics_port = -1;  // -1: /metrics on the HTTP port
  std::string api_key;        // several: separated by commas
  std::string api_key_file;   // one key a line
  std::string api_keys_file;  // keys with tenants, see server/key_file.h
  bool no_auth = false;       // allows a non-loopback host without keys
  std::string jwt_jwks_file;  // public keys of tokens; empty: no tokens
  std::string jwt_issuer;
  std::string jwt_audience;
  std::string ssl_cert_file;               // PEM chain; empty: no TLS
  std::string ssl_key_file;                // PEM
  std::string ssl_ca_file;                 // PEM, of the clients' certificates
  std::string ssl_cert_reqs = "required";  // none | optional | required
  std::string management_host = "127.0.0.1";
  int64_t management_port = -1;   // -1: on the HTTP port
  std::string audit_log_file;     // empty: the log
  std::string cors_allow_origin;  // empty: no CORS headers; "*" or an origin
  int64_t http_max_input_bytes = kMaxInputBytes;
  int64_t http_max_header_bytes = kMaxHeaderBytes;
  int64_t header_timeout_ms = 10'000;
  int64_t idle_timeout_ms = 75'000;   // keep-alive connection without request
  int64_t write_timeout_ms = 60'000;  // a client that reads nothing for so long
  int64_t max_connections = 4096;
  int64_t max_sessions = 1024;               // WebSockets open at once
  int64_t session_idle_timeout_ms = 60'000;  // without a message
  int64_t session_ping_interval_ms = 20'000;
  int64_t session_max_message_bytes = int64_t{1} << 20;
  int64_t io_threads = 1;
  int64_t handler_threads = 0;  // 0: 2, or a quarter of the cores
  int64_t shutdown_timeout_ms = 30'000;
  // Folder with a model repository; empty: none, models are named.
  std::string model_repository;
  std::string model_control_mode = "none";  // none | poll | explicit
  bool allow_runtime_lora_updating = false;
  std::vector<std::string> load_model;  // at start, in mode explicit
  int64_t repository_poll_ms = 15'000;  // in mode poll
  // Other servers whose metric names /metrics shows, too.
  std::vector<std::string> metrics_compat;
  // Folder of files and batches; empty: none are taken.
  std::string batch_dir;
  int64_t batch_dir_max_bytes = int64_t{10} << 30;
  int64_t batch_concurrency = 0;  // 0: half of max_num_seqs
  std::string otlp_endpoint;      // of a collector; empty: the OTEL_ variables'
  std::string log_level = "info";
  std::string log_format = "text";  // text | json
  bool access_log = true;
  bool shared_memory = true;
  // Paths without a line in the access log ("/metrics").
  std::vector<std::string> disable_access_log_for_endpoints;
};

// Settings that mean the same for every kind of model; one model may override
// these and those of its kind in the YAML file under `models`.
struct CommonSettings {
  static constexpr int32_t kMaxQueueSize = 100;

  int64_t threads = 0;       // 0: one per physical core allowed
  std::string isa = "auto";  // auto | scalar | avx2 | avxvnni | …
  std::string cpu_cores;     // CPUs to compute on, "0-3,8"; empty: chosen
  int64_t numa_node = -1;    // to choose them from; -1: any
  // cpu | cuda:0 | auto; of graphs, and of ranks of a group, also several:
  // "cuda:0,cuda:1" or "cuda:all", of graphs with instance_count instances each
  std::string device = "cpu";
  // Requests that wait beyond those that run; more are refused.
  int64_t max_queue_size = kMaxQueueSize;
};

// Settings of language models.
struct LlmSettings {
  static constexpr int32_t kMaxNumSeqs = 64;
  static constexpr int32_t kMaxNumBatchedTokens = 512;
  static constexpr int32_t kPromptLookupMin = 2;
  static constexpr int32_t kPromptLookupMax = 4;

  int64_t max_model_len = 0;  // tokens a sequence, 0: as the model says
  int64_t max_num_seqs = kMaxNumSeqs;
  int64_t max_num_batched_tokens = kMaxNumBatchedTokens;
  int64_t target_itl_ms = 150;  // 0: prompts take the whole step
  // auto | none | ngram | draft_model; see SpeculativeMethodOf
  std::string speculative_method = "auto";
  std::string speculative_model;  // a smaller one of the same vocabulary
  int64_t num_speculative_tokens = 5;
  int64_t prompt_lookup_min = kPromptLookupMin;
  int64_t prompt_lookup_max = kPromptLookupMax;
  int64_t kv_cache_memory_bytes = 0;  // 0: see kv_plan.h
  bool enable_prefix_caching = true;
  bool prefix_cache_share_generated = false;
  std::string kv_cache_dir;  // "": KV pages end with the process
  int64_t kv_cache_dir_max_bytes = int64_t{10} << 30;
  std::string kv_cache_dtype = "f16";  // f16 | int8 | f32
  // Activations where weights are quantised: auto, int8, int16, f32.
  std::string compute_dtype = "auto";
  std::string quantize = "none";  // float weights: none | q8_0 | q4_0 | …
  // Share of a GPU's memory that the model may take, 0 to 1.
  std::string gpu_memory_utilization = "0.9";
  bool enforce_eager = false;    // no CUDA graphs
  bool async_scheduling = true;  // two steps in flight on a GPU
  // Products of prompts with weights in F16 or BF16 on a GPU: native |
  // cublaslt.
  std::string gemm_backend = "native";
  bool huge_pages = true;
  // Processes that serve the model together, each with a part of every matrix;
  // and how long one waits for the others within a step.
  int64_t tensor_parallel_size = 1;
  int64_t tensor_parallel_timeout_ms = 60'000;
  std::string chat_template;  // a Jinja file instead of the model's own
  // auto | none | a format of handlers/parsers/formats.cc
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  // auto | none | vllm (as none) | a folder with generation_config.json
  std::string generation_config = "auto";
  std::string override_generation_config;  // JSON object, wins over it
  std::vector<std::string> lora_modules;   // adapters, NAME=PATH each
  std::string lora_dtype = "auto";         // auto | f16 | bf16 | f32 | int8
  // Which names a request's logits_processors may have; "": all there are.
  std::string logits_processor_pattern;
  // Of models that take images: most of them in a request, as image=N or
  // {"image": N}, and most pixels of one.
  std::string limit_mm_per_prompt = "image=16";
  int64_t max_image_pixels = int64_t{32} << 20;
  std::string mmproj;  // the GGUF file of their encoder of images; "": none
};

// How long requests of one priority level may wait, and how many.
struct QueueLevelSettings {
  int64_t timeout_us = 0;                 // 0: no limit
  std::string timeout_action = "reject";  // reject | delay
  bool allow_timeout_override = false;
  int64_t max_queue_size = 0;  // of this level; 0: no limit of its own
};

// Settings of graphs alone (ONNX, .pt2).
struct GraphSettings {
  std::string backend = "millrace";  // auto | millrace | onednn
  std::string precision = "auto";    // auto | f32 | tf32 | f16 | bf16 | int8
  std::string quantization;       // of millrace quantize; "": MODEL.quant.json
  std::string precision_samples;  // .npz files, by commas; "": made up
  int64_t max_precision_error = 100'000;  // millionths
  std::string conv_backend = "native";    // on a GPU: native | cudnn

  // Dynamic batching, see scheduler/batching_options.h.
  int64_t max_batch_size = 0;      // rows; 0: chosen where rows are independent
  int64_t max_queue_delay_us = 0;  // 0: an idle instance takes what is there
  std::vector<std::string> preferred_batch_size;  // ascending
  bool preserve_ordering = false;
  int64_t priority_levels = 0;
  int64_t default_priority_level = 0;           // 0: the middle one
  int64_t queue_timeout_us = 0;                 // in the queue; 0: none
  std::string queue_timeout_action = "reject";  // reject | delay
  bool allow_timeout_override = false;
  // Levels that differ from the four above; in config.pbtxt alone.
  std::map<int64_t, QueueLevelSettings> priority_queue_policy;
  int64_t instance_count = 1;  // run at the same time; 0: measured at load

  // Answers are kept and given again to requests of the same bytes.
  bool response_cache = false;
  int64_t response_cache_bytes = int64_t{64} << 20;
};

struct ModelSettings {
  std::string name = {};  // id in the API; empty: see ModelId
  std::string path = {};
  std::vector<std::string> served_model_name = {};  // further ids
  CommonSettings common = {};
  LlmSettings llm = {};
  GraphSettings graph = {};
  // Null: tensors or text alone. Shared by copies; never changed.
  std::shared_ptr<const TaskSettings> task = {};
};

// The id that the model is served as: its name, else the stem of its file, else
// the whole name of its folder.
std::string ModelId(const ModelSettings& model);

struct Settings {
  ServerSettings server;
  CommonSettings common;  // defaults of each model
  LlmSettings llm;        // of each language model
  GraphSettings graph;    // and of each graph
  std::vector<ModelSettings> models;
  // Further ids of the only model; Load hands them over when it knows one.
  std::vector<std::string> served_model_name;
};

}  // namespace millrace::config
