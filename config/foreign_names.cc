#include "config/foreign_names.h"

#include <algorithm>
#include <iterator>

namespace millrace::config {
namespace {

struct Answer {
  std::string_view names;  // separated by spaces
  std::string_view sentence;
};
constexpr Answer kAnswers[] = {
    {"lora enable_lora lora_path lora_paths lora_scaled lora_adapters "
     "max_loras max_lora_rank max_cpu_loras",
     "say --lora-modules NAME=PATH for each adapter; a request names it as its "
     "model"},
    {"ngl n_gpu_layers gpu_layers num_gpu main_gpu mg split_mode tensor_split "
     "ts",
     "all layers of a model run on one device; say --device cuda:0, or leave "
     "it out for the CPU"},
    {"mem_fraction_static",
     "say --gpu-memory-utilization on a GPU, --kv-cache-memory-bytes on a CPU"},
    {"num_shard sharded",
     "say --tensor-parallel-size N and start with mpirun -np N"},
    {"pipeline_parallel_size pp pp_size data_parallel_size dp numa "
     "distributed_executor_backend",
     "a model is split by --tensor-parallel-size alone; leave it out "
     "(--threads sets how many cores compute)"},
    {"swap_space cpu_offload_gb max_seq_len_to_capture "
     "cuda_graph_max_bs attention_backend flash_attn fa",
     "it tunes GPU servers; leave it out, attention has one fast "
     "implementation here"},
    {"disable_cuda_graph", "say --enforce-eager"},
    {"dtype",
     "weights keep the type of their file; --quantize rounds them while "
     "loading, --compute-dtype chooses the type of activations"},
    {"load_format", "the format is found from the file; leave it out"},
    {"trust_remote_code", "no code of a model is ever run; leave it out"},
    {"revision tokenizer_revision download_dir hf_token hf hfr hf_repo hf_file "
     "hff hf_overrides mu model_url huggingface_hub_cache code_revision",
     "nothing is downloaded; fetch the model first and name its file or "
     "folder"},
    {"tokenizer tokenizer_path tokenizer_mode skip_tokenizer_init",
     "the tokenizer is the one in the model's file or folder; leave it out"},
    {"mm_processor_kwargs media_path",
     "images are taken by models whose folder has an encoder of images, or "
     "that have one by mmproj; leave it out"},
    {"embedding embeddings rerank reranking task runner convert pooling "
     "is_embedding",
     "what a model does is found from its files; a config.yaml in a model "
     "repository may say it ('task: embed')"},
    {"enable_auto_tool_choice enable_reasoning",
     "tools and reasoning are always on where the chat template has them; "
     "leave it out"},
    {"guided_decoding_backend structured_outputs_config",
     "structured output is always by xgrammar; leave it out"},
    {"grammar grammar_file json_schema",
     "a request brings its own grammar or JSON schema; leave it out"},
    {"jinja", "chat templates are always applied; leave it out"},
    {"ssl ssl_cert_path ssl_key_path grpc_use_ssl grpc_server_cert "
     "grpc_server_key grpc_root_cert grpc_use_ssl_mutual tls",
     "say --ssl-cert-file and --ssl-key-file, and --ssl-ca-file where clients "
     "must show certificates, too"},
    {"ssl_ciphers ssl_version ssl_keyfile_password",
     "TLS 1.2 and 1.3 with forward secrecy are spoken, nothing else; leave it "
     "out, and store the key without a passphrase"},
    {"enable_ssl_refresh",
     "changed certificate files are always read again; leave it out"},
    {"enable_chunked_prefill chunked_prefill_size max_prefill_tokens "
     "cont_batching cb disable_chunked_prefix_cache",
     "prompts are always cut and batched with others; "
     "--max-num-batched-tokens sets the tokens of a step"},
    {"disable_radix_cache cache_prompt no_cache_prompt",
     "say --no-enable-prefix-caching to turn the prefix cache off"},
    {"seed s random_seed", "a seed is a field of each request ('seed')"},
    {"temp temperature top_k top_p min_p repeat_penalty repetition_penalty "
     "presence_penalty frequency_penalty",
     "sampling is a field of each request; to change what requests without it "
     "get, say --override-generation-config '{\"temperature\": 0.2}'"},
    {"max_tokens n_predict predict n max_new_tokens default_max_tokens",
     "the length of an answer is a field of each request ('max_tokens')"},
    {"prompt p system_prompt system sys",
     "serve answers requests; ask with `millrace chat`"},
    {"verbose v log_verbose debug", "say --log-level debug"},
    {"disable_log_requests disable_log_stats no_log_requests log_disable "
     "disable_uvicorn_access_log",
     "say --no-access-log"},
    {"quiet q", "say --log-level warning"},
    {"mlock no_mmap mmap direct_io",
     "weights are packed into memory of their own when they are loaded; leave "
     "it out"},
    {"metrics enable_metrics allow_metrics slots props no_slots",
     "/metrics is always served; leave it out"},
    {"allow_http allow_grpc",
     "both are always on; --grpc-port -1 turns gRPC off"},
    {"speculative_config speculative_algorithm draft draft_min draft_p_min",
     "say --speculative-model FILE, --num-speculative-tokens N or "
     "--speculative-method ngram"},
    {"workers num_workers worker tokenizer_workers",
     "one process serves all; --handler-threads and --io-threads set its "
     "threads"},
    {"strict_readiness",
     "the server is ready when every model of the start has been loaded, or, "
     "with --exit-on-error=false, was tried; leave it out"},
    {"strict_model_config disable_auto_complete_config",
     "what a config.pbtxt leaves out is found in the model; leave it out"},
    {"backend_directory backend_config repoagent_directory "
     "min_supported_compute_capability cache_config cache_directory "
     "pinned_memory_pool_byte_size "
     "cuda_memory_pool_byte_size buffer_manager_thread_count "
     "model_load_thread_count model_load_gpu_limit host_policy rate_limit "
     "rate_limit_resource model_namespacing",
     "it tunes parts of Triton that are not here; leave it out"},
    {"log_info log_warning log_error log_file",
     "say --log-level; the log goes to the standard error stream"},
    {"trace_config trace_file trace_level trace_rate trace_count",
     "say --otlp-endpoint for spans of requests, or ask a running server with "
     "`millrace trace`"},
    {"allow_gpu_metrics allow_cpu_metrics metrics_interval_ms "
     "metrics_config metrics_address",
     "all metrics are measured when they are asked for; leave it out "
     "(--metrics-port gives them a port of their own)"},
    {"models start ncs ts_config",
     "name models as arguments: millrace serve NAME=FILE NAME=FILE, or say "
     "--profile torchserve before TorchServe's own flags"},
    {"timeout to request_timeout timeout_keep_alive",
     "say which: --header-timeout, --idle-timeout, --write-timeout or "
     "--shutdown-timeout"},
    {"rope_scaling rope_theta rope_freq_base rope_freq_scale yarn_orig_ctx",
     "positions are scaled as the model's file says; leave it out"},
    {"daemon detach d",
     "the server stays in the foreground; start it from systemd, a container "
     "or with & behind it"},
};

bool Holds(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::string_view ForeignNameAnswer(std::string_view name) {
  if (name.empty()) return {};
  const auto at = std::find_if(
      std::begin(kAnswers), std::end(kAnswers),
      [&](const Answer& answer) { return Holds(answer.names, name); });
  return at == std::end(kAnswers) ? std::string_view() : at->sentence;
}

}  // namespace millrace::config
