// Names as vLLM 0.10 (vllm/v1/metrics/loggers.py), Triton 2.5x
// (docs/user_guide/metrics.md), TorchServe 0.12 (ts/configs/metrics.yaml) and
// llama.cpp of 2026 (tools/server/README.md) export them.
//
// Left out of vLLM: the kv_block_* histograms (off by default there),
// num_requests_waiting_by_reason, prompt_tokens_by_source_total, mm_cache_* and
// external_prefix_cache_* (not counted in these ways). Left out of Triton:
// nv_inference_first_response_histogram_ms and the *_summary_us (off by default
// there), nv_cache_hit_duration_per_model and nv_cache_miss_duration_per_model
// (not measured) and nv_pinned_memory_pool_* (no pool).
#include "server/compat_metrics.h"

#include <algorithm>
#include <utility>

namespace millrace::server {
namespace {

using Aliases = std::vector<MetricAlias>;

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kHistogram = MetricKind::kHistogram;
constexpr MetricPart kValue = MetricPart::kValue;
constexpr MetricPart kSum = MetricPart::kSum;
constexpr MetricPart kCount = MetricPart::kCount;
constexpr MetricPart kRecentMean = MetricPart::kRecentMean;
constexpr double kMicro = 1e6;  // a second's
constexpr double kMilli = 1e3;
constexpr double kPercent = 100;
constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;

void AddVllm(Aliases& all) {
  const auto add = [&](MetricAlias alias) {
    alias.of_models_with = "millrace_generation_tokens_total";
    alias.labels.insert(alias.labels.begin(), {"model", "model_name"});
    alias.fixed.emplace_back("engine", "0");
    all.push_back(std::move(alias));
  };
  struct Plain {
    std::string_view name, help;
    MetricKind kind;
    std::string_view source;
    MetricPart part = kind == kHistogram ? MetricPart::kHistogram : kValue;
  };
  constexpr Plain kPlain[] = {
      {"vllm:num_requests_running", "Requests being computed.", kGauge,
       "millrace_requests_running"},
      {"vllm:num_requests_waiting", "Requests waiting to be computed.", kGauge,
       "millrace_requests_waiting"},
      // Of the fullest version, where several of a model serve.
      {"vllm:kv_cache_usage_perc", "KV pages in use; 1 is all of them.", kGauge,
       "millrace_kv_cache_usage_ratio", MetricPart::kGreatest},
      {"vllm:gpu_cache_usage_perc", "Old name of kv_cache_usage_perc.", kGauge,
       "millrace_kv_cache_usage_ratio", MetricPart::kGreatest},
      {"vllm:prompt_tokens_total", "Prompt tokens taken in.", kCounter,
       "millrace_prompt_tokens_total"},
      {"vllm:generation_tokens_total", "Tokens generated.", kCounter,
       "millrace_generation_tokens_total"},
      {"vllm:prompt_tokens_cached_total", "Prompt tokens found computed.",
       kCounter, "millrace_prefix_cache_hits_total"},
      {"vllm:prefix_cache_queries_total", "Prompt tokens looked up.", kCounter,
       "millrace_prefix_cache_queries_total"},
      {"vllm:prefix_cache_hits_total", "Prompt tokens found computed.",
       kCounter, "millrace_prefix_cache_hits_total"},
      {"vllm:num_preemptions_total", "Sequences put back to waiting.", kCounter,
       "millrace_preemptions_total"},
      {"vllm:admission_rejections_total", "Requests refused a place.", kCounter,
       "millrace_admission_refusals_total"},
      {"vllm:spec_decode_num_drafts_total", "Drafts checked.", kCounter,
       "millrace_spec_decode_num_drafts_total"},
      {"vllm:spec_decode_num_draft_tokens_total", "Draft tokens checked.",
       kCounter, "millrace_spec_decode_num_draft_tokens_total"},
      {"vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.",
       kCounter, "millrace_spec_decode_num_accepted_tokens_total"},
      {"vllm:time_to_first_token_seconds", "Arrival to first token.",
       kHistogram, "millrace_time_to_first_token_seconds"},
      {"vllm:inter_token_latency_seconds", "Between two tokens.", kHistogram,
       "millrace_inter_token_latency_seconds"},
      {"vllm:time_per_output_token_seconds",
       "Old name of inter_token_latency_seconds.", kHistogram,
       "millrace_inter_token_latency_seconds"},
      {"vllm:e2e_request_latency_seconds", "Arrival to end.", kHistogram,
       "millrace_completion_time_seconds"},
      {"vllm:request_queue_time_seconds", "Waiting to be computed.", kHistogram,
       "millrace_queue_time_seconds"},
      {"vllm:request_inference_time_seconds", "First step to end.", kHistogram,
       "millrace_inference_time_seconds"},
      {"vllm:request_prefill_time_seconds", "First step to first token.",
       kHistogram, "millrace_prefill_time_seconds"},
      {"vllm:request_decode_time_seconds", "First token to end.", kHistogram,
       "millrace_decode_time_seconds"},
      {"vllm:request_time_per_output_token_seconds",
       "Mean time between tokens of completions.", kHistogram,
       "millrace_request_time_per_output_token_seconds"},
      {"vllm:request_prompt_tokens", "Tokens of prompts.", kHistogram,
       "millrace_request_prompt_tokens"},
      {"vllm:request_prefill_kv_computed_tokens",
       "Tokens of prompts that were computed.", kHistogram,
       "millrace_request_computed_prompt_tokens"},
      {"vllm:request_generation_tokens", "Tokens of completions.", kHistogram,
       "millrace_request_generation_tokens"},
      {"vllm:request_max_num_generation_tokens",
       "Tokens of the longest of a request's n completions.", kHistogram,
       "millrace_request_longest_completion_tokens"},
      {"vllm:request_params_max_tokens", "max_tokens asked for.", kHistogram,
       "millrace_request_max_tokens"},
      {"vllm:request_params_n", "n asked for.", kHistogram,
       "millrace_request_n"},
      {"vllm:iteration_tokens_total", "Tokens of a step.", kHistogram,
       "millrace_step_tokens"},
  };
  for (const Plain& each : kPlain) {
    add({.name = each.name,
         .help = each.help,
         .kind = each.kind,
         .source = each.source,
         .part = each.part});
  }
  add({.name = "vllm:spec_decode_num_accepted_tokens_per_pos_total",
       .help = "Draft tokens accepted, by their place in the draft.",
       .source = "millrace_spec_decode_num_accepted_tokens_per_pos_total",
       .labels = {{"position", "position"}}});
  add({.name = "vllm:cache_config_info",
       .help = "Always 1; sizes of the KV cache in labels.",
       .kind = kGauge,
       .source = "millrace_kv_cache_info",
       .part = MetricPart::kGreatest,
       .labels = {{"page_tokens", "block_size"},
                  {"num_pages", "num_gpu_blocks"}}});
  // There it tells of no model: a process has one.
  all.push_back({.name = "vllm:lora_requests_info",
                 .help = "LoRA adapters of running and waiting requests; the "
                         "value is the Unix time of the scrape.",
                 .kind = kGauge,
                 .source = "millrace_lora_requests_info",
                 .part = MetricPart::kGreatest,
                 .labels = {{"running_lora_adapters", "running_lora_adapters"},
                            {"waiting_lora_adapters", "waiting_lora_adapters"},
                            {"max_lora", "max_lora"}}});
  constexpr std::pair<std::string_view, const char*> kReasons[] = {
      {"stop", "stop"}, {"length", "length"}, {"cancelled", "abort"}};
  for (const auto& [ours, theirs] : kReasons) {
    add({.name = "vllm:request_success_total",
         .help = "Completions by why they ended.",
         .source = "millrace_completions_total",
         .where = {"reason", ours},
         .fixed = {{"finished_reason", theirs}}});
  }
}

void AddTritonGpus(Aliases& all) {
  const auto add = [&](std::string_view name, std::string_view help,
                       std::string_view source, MetricKind kind = kGauge,
                       std::string_view state = {}) {
    MetricAlias alias = {
        .name = name, .help = help, .kind = kind, .source = source};
    if (!state.empty()) alias.where = {"state", state};
    alias.labels = {{"gpu_uuid", "gpu_uuid"}};
    all.push_back(std::move(alias));
  };
  add("nv_gpu_utilization", "Share of time in which the GPU is busy.",
      "millrace_gpu_utilization_ratio");
  add("nv_gpu_memory_total_bytes", "Memory of the GPU.",
      "millrace_gpu_memory_bytes", kGauge, "total");
  add("nv_gpu_memory_used_bytes", "Memory of the GPU in use.",
      "millrace_gpu_memory_bytes", kGauge, "used");
  add("nv_gpu_power_usage", "Watts drawn.", "millrace_gpu_power_watts");
  add("nv_gpu_power_limit", "Watts allowed.", "millrace_gpu_power_limit_watts");
  add("nv_energy_consumption", "Joules drawn since the server started.",
      "millrace_gpu_energy_joules_total", kCounter);
}

void AddTriton(Aliases& all) {
  const auto add = [&](MetricAlias alias) {
    alias.labels = {{"model", "model"}, {"version", "version"}};
    all.push_back(std::move(alias));
  };
  // Graphs first, then language models, which count by completions and steps.
  const auto ended = [&](std::string_view name, std::string_view help,
                         std::string_view outcome,
                         std::initializer_list<std::string_view> reasons,
                         const char* reason) {
    std::vector<std::pair<std::string, std::string>> fixed;
    if (reason != nullptr) fixed.emplace_back("reason", reason);
    add({.name = name,
         .help = help,
         .source = "millrace_inference_requests_total",
         .where = {"outcome", outcome},
         .fixed = fixed});
    for (const std::string_view each : reasons) {
      add({.name = name,
           .help = help,
           .source = "millrace_completions_total",
           .where = {"reason", each},
           .fixed = fixed});
    }
  };
  ended("nv_inference_request_success", "Requests answered.", "ok",
        {"stop", "length"}, nullptr);
  constexpr std::string_view kFailure = "nv_inference_request_failure";
  constexpr std::string_view kFailureHelp = "Requests without an answer.";
  ended(kFailure, kFailureHelp, "rejected", {}, "REJECTED");
  ended(kFailure, kFailureHelp, "cancelled", {"cancelled"}, "CANCELED");
  ended(kFailure, kFailureHelp, "error", {"error"}, "BACKEND");
  add({.name = kFailure,
       .help = kFailureHelp,
       .source = "millrace_admission_refusals_total",
       .of_models_with = "millrace_generation_tokens_total",
       .fixed = {{"reason", "REJECTED"}}});
  const auto number = [&](std::string_view name, std::string_view help,
                          std::string_view source, MetricPart part = kValue,
                          double scale = 1, MetricKind kind = kCounter) {
    add({.name = name,
         .help = help,
         .kind = kind,
         .source = source,
         .part = part,
         .scale = scale});
  };
  const auto stage = [&](std::string_view name, std::string_view ours) {
    add({.name = name,
         .help = "Microseconds of answered requests.",
         .source = "millrace_inference_stage_seconds_total",
         .scale = kMicro,
         .where = {"stage", ours}});
  };
  number("nv_inference_count", "Rows computed; completions of language models.",
         "millrace_inference_rows_total");
  number("nv_inference_count", "Rows computed; completions of language models.",
         "millrace_completions_total");
  number("nv_inference_exec_count", "Batches or steps computed.",
         "millrace_batch_size", kCount);
  number("nv_inference_pending_request_count", "Requests that wait.",
         "millrace_requests_waiting", kValue, 1, kGauge);
  constexpr std::string_view kRequest = "nv_inference_request_duration_us";
  constexpr std::string_view kRequestHelp =
      "Microseconds from queueing to the end.";
  number(kRequest, kRequestHelp, "millrace_inference_request_seconds_total",
         kValue, kMicro);
  number(kRequest, kRequestHelp, "millrace_completion_time_seconds", kSum,
         kMicro);
  number("nv_inference_queue_duration_us", "Microseconds in the queue.",
         "millrace_queue_time_seconds", kSum, kMicro);
  stage("nv_inference_compute_input_duration_us", "compute_input");
  stage("nv_inference_compute_infer_duration_us", "compute_infer");
  number("nv_inference_compute_infer_duration_us",
         "Microseconds of answered requests.",
         "millrace_inference_time_seconds", kSum, kMicro);
  stage("nv_inference_compute_output_duration_us", "compute_output");
  number("nv_cache_num_hits_per_model", "Requests answered from the cache.",
         "millrace_response_cache_hits_total");
  number("nv_cache_num_misses_per_model",
         "Requests that the cache had no answer for.",
         "millrace_response_cache_misses_total");
  number("nv_model_load_duration_secs", "Seconds that the load took.",
         "millrace_model_load_seconds", kValue, 1, kGauge);
  number("nv_cpu_utilization", "Share of the cores in use, 0 to 1.",
         "millrace_host_cpu_utilization_ratio", kValue, 1, kGauge);
  for (const auto& [name, state] :
       {std::pair<std::string_view, std::string_view>{
            "nv_cpu_memory_total_bytes", "total"},
        {"nv_cpu_memory_used_bytes", "used"}}) {
    add({.name = name,
         .help = "Memory of the machine.",
         .kind = kGauge,
         .source = "millrace_host_memory_bytes",
         .where = {"state", state}});
  }
}

void AddTorchServeGpus(const std::pair<std::string, std::string>& host,
                       Aliases& all) {
  const auto add = [&](std::string_view name, std::string_view help,
                       std::string_view source, double scale,
                       std::string_view state = {}) {
    MetricAlias alias = {.name = name,
                         .help = help,
                         .kind = kGauge,
                         .source = source,
                         .scale = scale,
                         .labels = {{"gpu", "DeviceId"}},
                         .fixed = {{"Level", "Host"}, host}};
    if (!state.empty()) alias.where = {"state", state};
    all.push_back(std::move(alias));
  };
  add("GPUUtilization", "Percent of the time in which the GPU is busy.",
      "millrace_gpu_utilization_ratio", kPercent);
  add("GPUMemoryUsed", "Megabytes of the GPU's memory in use.",
      "millrace_gpu_memory_bytes", 1 / kMiB, "used");
  add("GPUMemoryUtilization", "Percent of the GPU's memory in use.",
      "millrace_gpu_memory_utilization_ratio", kPercent);
}

void AddTorchServe(std::string_view hostname, Aliases& all) {
  const std::pair<std::string, std::string> host = {"Hostname",
                                                    std::string(hostname)};
  const auto of_host = [&](MetricAlias alias) {
    if (alias.help.empty())
      alias.help = "Of the machine, in TorchServe's units.";
    alias.fixed = {{"Level", "Host"}, host};
    all.push_back(std::move(alias));
  };
  for (const auto& [name, status] :
       {std::pair<std::string_view, std::string_view>{"Requests2XX", "2xx"},
        {"Requests4XX", "4xx"},
        {"Requests5XX", "5xx"}}) {
    of_host({.name = name,
             .help = "HTTP answers by the class of their status.",
             .source = "millrace_http_responses_total",
             .where = {"class", status}});
  }
  const auto of_model = [&](MetricAlias alias) {
    alias.help = "Of a model's requests, in TorchServe's units.";
    alias.labels = {{"model", "model_name"}, {"version", "model_version"}};
    alias.fixed = {{"hostname", std::string(hostname)}};
    all.push_back(std::move(alias));
  };
  of_model({.name = "ts_inference_requests_total",
            .source = "millrace_inference_requests_total"});
  of_model({.name = "ts_inference_requests_total",
            .source = "millrace_completions_total"});
  of_model({.name = "ts_inference_latency_microseconds",
            .source = "millrace_inference_request_seconds_total",
            .scale = kMicro});
  of_model({.name = "ts_inference_latency_microseconds",
            .source = "millrace_completion_time_seconds",
            .part = kSum,
            .scale = kMicro});
  of_model({.name = "ts_queue_latency_microseconds",
            .source = "millrace_queue_time_seconds",
            .part = kSum,
            .scale = kMicro});

  struct Time {
    std::string_view name, source;
  };
  constexpr Time kTimes[] = {
      {"PredictionTime", "millrace_compute_time_seconds"},
      {"PredictionTime", "millrace_inference_time_seconds"},
      {"HandlerTime", "millrace_compute_time_seconds"},
      {"HandlerTime", "millrace_inference_time_seconds"},
      {"QueueTime", "millrace_queue_time_seconds"},
      // There: what a job takes of the thread of its worker beside waiting for
      // the handler's process. Graphs alone.
      {"WorkerThreadTime", "millrace_batch_overhead_seconds"},
  };
  for (const Time& time : kTimes) {
    all.push_back({.name = time.name,
                   .help = "Mean milliseconds since the last scrape.",
                   .kind = kGauge,
                   .source = time.source,
                   .part = kRecentMean,
                   .scale = kMilli,
                   .labels = {{"model", "ModelName"}},
                   .fixed = {{"Level", "Model"}, host}});
  }
  all.push_back({.name = "WorkerLoadTime",
                 .help = "Milliseconds that the load took.",
                 .kind = kGauge,
                 .source = "millrace_model_load_seconds",
                 .scale = kMilli,
                 .labels = {{"model", "WorkerName"}},
                 .fixed = {{"Level", "Host"}, host}});
  const auto gauge = [&](std::string_view name, std::string_view source,
                         double scale, std::string_view state) {
    MetricAlias alias{
        .name = name, .kind = kGauge, .source = source, .scale = scale};
    if (!state.empty()) alias.where = {"state", state};
    of_host(std::move(alias));
  };
  constexpr std::string_view kMemory = "millrace_host_memory_bytes";
  constexpr std::string_view kDisk = "millrace_host_disk_bytes";
  gauge("CPUUtilization", "millrace_host_cpu_utilization_ratio", kPercent, {});
  gauge("MemoryUsed", kMemory, 1 / kMiB, "used");
  gauge("MemoryAvailable", kMemory, 1 / kMiB, "available");
  gauge("MemoryUtilization", "millrace_host_memory_utilization_ratio", kPercent,
        {});
  gauge("DiskUsage", kDisk, 1 / kGiB, "used");
  gauge("DiskAvailable", kDisk, 1 / kGiB, "available");
  gauge("DiskUtilization", "millrace_host_disk_utilization_ratio", kPercent,
        {});
  AddTorchServeGpus(host, all);
}

// Series without labels, as there; several models are added.
void AddLlama(Aliases& all) {
  const auto add = [&](MetricAlias alias) {
    alias.of_models_with = "millrace_generation_tokens_total";
    all.push_back(std::move(alias));
  };
  struct Plain {
    std::string_view name, help;
    MetricKind kind;
    std::string_view source;
    MetricPart part = kValue;
  };
  constexpr Plain kPlain[] = {
      {"llamacpp:prompt_tokens_total", "Prompt tokens computed.", kCounter,
       "millrace_computed_prompt_tokens_total"},
      {"llamacpp:prompt_tokens_cached_total",
       "Prompt tokens found in the prefix cache.", kCounter,
       "millrace_prefix_cache_hits_total"},
      {"llamacpp:prompt_seconds_total", "Time of prompts.", kCounter,
       "millrace_prefill_time_seconds", kSum},
      {"llamacpp:tokens_predicted_total", "Tokens generated.", kCounter,
       "millrace_generation_tokens_total"},
      {"llamacpp:tokens_predicted_seconds_total", "Time of completions.",
       kCounter, "millrace_decode_time_seconds", kSum},
      {"llamacpp:n_decode_total", "Steps computed.", kCounter,
       "millrace_batch_size", kCount},
      {"llamacpp:n_tokens_max", "Tokens of the longest sequence.", kCounter,
       "millrace_longest_sequence_tokens", MetricPart::kGreatest},
      {"llamacpp:spec_decode_num_drafts_total", "Drafts checked.", kCounter,
       "millrace_spec_decode_num_drafts_total"},
      {"llamacpp:spec_decode_num_draft_tokens_total", "Draft tokens checked.",
       kCounter, "millrace_spec_decode_num_draft_tokens_total"},
      {"llamacpp:spec_decode_num_accepted_tokens_total",
       "Draft tokens accepted.", kCounter,
       "millrace_spec_decode_num_accepted_tokens_total"},
      {"llamacpp:requests_processing", "Requests being computed.", kGauge,
       "millrace_requests_running"},
      {"llamacpp:requests_deferred", "Requests waiting to be computed.", kGauge,
       "millrace_requests_waiting"},
  };
  for (const Plain& each : kPlain) {
    add({.name = each.name,
         .help = each.help,
         .kind = each.kind,
         .source = each.source,
         .part = each.part});
  }
  add({.name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
       .help = "Draft tokens accepted, by their place in the draft.",
       .source = "millrace_spec_decode_num_accepted_tokens_per_pos_total",
       .labels = {{"position", "position"}}});
  add({.name = "llamacpp:n_busy_slots_per_decode",
       .help = "Mean sequences of a step.",
       .kind = kGauge,
       .source = "millrace_batch_size",
       .part = kSum,
       .per = "llamacpp:n_decode_total"});
  const auto rate = [&](std::string_view name, std::string_view tokens,
                        std::string_view seconds) {
    all.push_back({.name = name,
                   .help = "Tokens a second of a sequence, of what came since "
                           "the last scrape.",
                   .kind = kGauge,
                   .source = tokens,
                   .part = kRecentMean,
                   .per = seconds});
  };
  rate("llamacpp:prompt_tokens_seconds", "llamacpp:prompt_tokens_total",
       "llamacpp:prompt_seconds_total");
  rate("llamacpp:predicted_tokens_seconds", "llamacpp:tokens_predicted_total",
       "llamacpp:tokens_predicted_seconds_total");
}

}  // namespace

StatusOr<Aliases> CompatMetrics(const std::vector<std::string>& servers,
                                std::string_view hostname) {
  Aliases all;
  for (auto each = servers.begin(); each != servers.end(); ++each) {
    if (std::find(servers.begin(), each, *each) != each) continue;
    if (*each == "vllm") {
      AddVllm(all);
    } else if (*each == "triton") {
      AddTriton(all);
      AddTritonGpus(all);
    } else if (*each == "torchserve") {
      AddTorchServe(hostname, all);
    } else if (*each == "llamacpp") {
      AddLlama(all);
    } else {
      return InvalidArgument("metrics_compat names '" + *each +
                             "', but only the metric names of vllm, triton, "
                             "torchserve and llamacpp are known; leave it out")
          .At("metrics_compat");
    }
  }
  return all;
}

}  // namespace millrace::server
