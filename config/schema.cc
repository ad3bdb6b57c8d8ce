// Names, bounds, help and aliases of the models' settings (those of the server
// stand in schema_server.cc); the values' types and defaults are the structs'
// own. An alias is taken where another server means the same thing by it, never
// where only the word is alike.
#include "config/schema.h"

#include <filesystem>
#include <system_error>

#include "config/settings_visitor.h"

namespace millrace::config {
std::string ModelId(const ModelSettings& model) {
  if (!model.name.empty()) return model.name;
  std::filesystem::path path(model.path);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    return path.stem().string();
  path = std::filesystem::absolute(path, ignored).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

SettingVisitor InGroup(std::string_view group, const SettingVisitor& visit) {
  return [group, &visit](SettingInfo info, SettingRef value) {
    info.group = group;
    visit(info, value);
  };
}

namespace {

void VisitCommonSettings(CommonSettings& s, const SettingVisitor& visit) {
  visit({.name = "threads",
         .help = "compute threads; 0: one for each physical core allowed, from "
                 "four cores on all but one",
         .max = 1024,
         .aliases = {{"t", {}, true}, {"inference_num_threads"}}},
        &s.threads);
  visit({.name = "isa",
         .help = "instruction set of the kernels; `millrace topology` says "
                 "which run here and which give other bits than the rest (amx "
                 "for prompts, and both bf16 ones for BF16 weights)",
         .choices = {"auto", "scalar", "avx2", "avxvnni", "avx512vnni",
                     "avx512bf16", "amx", "neon", "neondot", "neoni8mm"}},
        &s.isa);
  visit({.name = "cpu_cores",
         .help = "CPUs that a model computes on, such as 0-3,8; empty: chosen "
                 "among those that no other model has"},
        &s.cpu_cores);
  visit({.name = "numa_node",
         .help = "NUMA node that a model's cores are chosen from; -1: any",
         .min = -1,
         .max = 1023},
        &s.numa_node);
  visit(
      {.name = "device",
       .help = "where a model runs: cpu, cuda:0 (a prototype that never ran "
               "on a GPU), or auto: cuda:0, and where that cannot serve the "
               "CPU; of a graph also several, cuda:0,cuda:1 or cuda:all, each "
               "with instance_count instances; with tensor_parallel_size one "
               "for each process: cuda, or cuda:0,cuda:1"},
      &s.device);
  visit(
      {.name = "max_queue_size",
       .help = "requests of a model that may wait beyond those that run; more "
               "are refused with 429",
       .max = 1'000'000,
       .aliases = {{"job_queue_size"},
                   {"jobQueueSize"},
                   {"max_num_queued_reqs"},
                   {"max_concurrent_requests"}}},
      &s.max_queue_size);
}

void VisitBatchSettings(GraphSettings& s, const SettingVisitor& visit) {
  visit({.name = "max_batch_size",
         .help = "rows of requests that a graph computes together; 1: none "
                 "are joined; 0: 32 where the graph's rows are independent",
         .max = 1 << 16,
         .aliases = {{"batch_size"}, {"batchSize"}}},
        &s.max_batch_size);
  visit({.name = "max_queue_delay",
         .help = "time that a batch which is not full waits for more requests",
         .unit = Unit::kMicroseconds,
         .max = 60'000'000,
         .aliases = {{"max_queue_delay_microseconds", "us"},
                     {"batch_timeout_micros", "us"},
                     {"max_batch_delay", "ms"},
                     {"maxBatchDelay", "ms"}}},
        &s.max_queue_delay_us);
  visit({.name = "preferred_batch_size",
         .help = "sizes of batches that are sent at once, such as 4,8"},
        &s.preferred_batch_size);
  visit({.name = "preserve_ordering",
         .help = "results of a graph leave in the order of the requests; not "
                 "with several priority_levels or timeout_action delay"},
        &s.preserve_ordering);
  visit({.name = "priority_levels",
         .help = "levels of priority of requests, 1 is first; 0: none",
         .max = 1000},
        &s.priority_levels);
  visit({.name = "default_priority_level",
         .help = "of requests without one; 0: the middle level",
         .max = 1000},
        &s.default_priority_level);
  visit({.name = "default_queue_timeout",
         .help = "time that a request of a graph may wait in the queue; 0: no "
                 "limit",
         .unit = Unit::kMicroseconds,
         .max = 3'600'000'000,
         .aliases = {{"default_timeout_microseconds", "us"}}},
        &s.queue_timeout_us);
  visit(
      {.name = "timeout_action",
       .help = "what becomes of a request whose time in the queue is over: it "
               "is refused, or waits behind all others",
       .choices = {"reject", "delay"}},
      &s.queue_timeout_action);
  visit({.name = "allow_timeout_override",
         .help = "a request's own timeout may shorten its time in the queue"},
        &s.allow_timeout_override);
  visit(
      {.name = "instance_count",
       .help = "instances of a graph that run at the same time, each on cores "
               "of its own; they share weights; 0: as many as a measurement "
               "at load finds fastest",
       .min = 0,
       .max = 1024,
       .aliases = {{"instances"}, {"minWorkers"}, {"initial_workers"}}},
      &s.instance_count);
  visit({.name = "response_cache",
         .help = "keep the answers of a graph and give them again to requests "
                 "whose tensors have the same bytes; for graphs that answer "
                 "alike each time"},
        &s.response_cache);
  visit({.name = "response_cache_bytes",
         .help = "memory for those answers, of each model; those that were "
                 "not asked for the longest go first",
         .unit = Unit::kBytes,
         .max = int64_t{1} << 40,
         .aliases = {{"response_cache_byte_size"}}},
        &s.response_cache_bytes);
}

void VisitPrecision(GraphSettings& s, const SettingVisitor& visit) {
  visit({.name = "graph_backend",
         .help = "whose kernels compute convolutions and linear layers of "
                 "graphs: millrace, onednn wherever it can, or auto: oneDNN "
                 "for those that a measurement at load (some seconds) finds "
                 "5 % faster; a row's bits never depend on its batch, but "
                 "those of the two differ",
         .choices = {"auto", "millrace", "onednn"}},
        &s.backend);
  visit({.name = "precision",
         .help = "number type that graphs multiply in; auto: f32 on a CPU, "
                 "tf32 on a GPU; a CPU also has bf16, where it multiplies "
                 "such, and int8 as millrace quantize has chosen: results are "
                 "held against f32 when the model is loaded, and the costliest "
                 "layers stay in f32; a GPU also has f32, f16, bf16 and int8",
         .choices = {"auto", "f32", "tf32", "f16", "bf16", "int8"}},
        &s.precision);
  visit({.name = "quantization",
         .help = "file that millrace quantize has written, for int8; empty: "
                 "MODEL.quant.json"},
        &s.quantization);
  visit({.name = "precision_samples",
         .help = ".npz files with inputs to hold bf16 or int8 against f32 on, "
                 "and for graph_backend auto to measure on, separated by "
                 "commas; empty: random ones"},
        &s.precision_samples);
  visit({.name = "max_precision_error",
         .help = "share of the results, as root mean squares, that bf16 or "
                 "int8 may change",
         .unit = Unit::kShare,
         .max = 1'000'000'000},
        &s.max_precision_error);
  visit({.name = "conv_backend",
         .help = "on a GPU, what computes convolutions: native: this program's "
                 "kernels; cudnn: NVIDIA's library, native where it is absent "
                 "or has no engine that gives the same bits in any batch",
         .choices = {"native", "cudnn"}},
        &s.conv_backend);
}

void VisitSequences(LlmSettings& s, const SettingVisitor& visit) {
  visit({.name = "max_model_len",
         .help = "tokens of one sequence, prompt and answer; 0: as the model "
                 "says; 32K are 32768, 128k are 128000",
         .unit = Unit::kTokens,
         .max = 1 << 24,
         .aliases = {{"ctx_size"},
                     {"c", {}, true},
                     {"max_total_tokens"},
                     {"context_length"}}},
        &s.max_model_len);
  visit({.name = "max_num_seqs",
         .help = "sequences that run at once",
         .min = 1,
         .max = 4096,
         .aliases = {{"np", {}, true}, {"parallel"}, {"max_running_requests"}}},
        &s.max_num_seqs);
  visit({.name = "max_num_batched_tokens",
         .help =
             "tokens computed in one step; running sequences may exceed it by "
             "their next token",
         .unit = Unit::kTokens,
         .min = 1,
         .max = 1 << 20,
         .aliases = {{"b", {}, true},
                     {"ub", {}, true},
                     {"ubatch_size"},
                     {"max_batch_prefill_tokens"}}},
        &s.max_num_batched_tokens);
  visit({.name = "target_itl",
         .help = "time between two tokens of an answer that the prompts of "
                 "others should not stretch: prompts are cut to fit; 0: never",
         .unit = Unit::kMilliseconds,
         .max = 3'600'000,
         .aliases = {{"target_itl_ms", "ms"}}},
        &s.target_itl_ms);
}

void VisitSpeculation(LlmSettings& s, const SettingVisitor& visit) {
  visit({.name = "speculative_method",
         .help = "draft next tokens and check several in one step, where that "
                 "is faster; answers stay the same; ngram: from what stands "
                 "in prompt and answer, and what a grammar or schema leaves "
                 "no choice about; draft_model: what speculative_model says; "
                 "auto: draft_model where one is named, else ngram",
         .choices = {"auto", "none", "ngram", "draft_model"}},
        &s.speculative_method);
  visit({.name = "speculative_model",
         .help = "smaller model with the vocabulary of the one served, to "
                 "draft with; it shares the memory for keys and values",
         .aliases = {{"model_draft"},
                     {"md", {}, true},
                     {"speculative_draft_model_path"}}},
        &s.speculative_model);
  visit({.name = "num_speculative_tokens",
         .help = "most tokens to draft in a row",
         .max = 31,
         .aliases = {{"draft_max"}, {"draft_n"}}},
        &s.num_speculative_tokens);
  visit({.name = "prompt_lookup_min",
         .help = "tokens that must match before tokens are drafted",
         .min = 1,
         .max = 64},
        &s.prompt_lookup_min);
  visit({.name = "prompt_lookup_max",
         .help = "tokens that a match is followed back; at least "
                 "prompt_lookup_min",
         .min = 1,
         .max = 64},
        &s.prompt_lookup_max);
}

void VisitMemory(LlmSettings& s, const SettingVisitor& visit) {
  visit(
      {.name = "kv_cache_memory_bytes",
       .help = "memory for keys and values; 0: what max_num_seqs sequences of "
               "full length need, at most a quarter of the memory limit",
       .unit = Unit::kBytes,
       .max = int64_t{1} << 46,
       .aliases = {{"cache_size", "GB"}}},
      &s.kv_cache_memory_bytes);
  visit({.name = "enable_prefix_caching",
         .help = "keep keys and values of ended requests for prompts that "
                 "begin alike"},
        &s.enable_prefix_caching);
  visit({.name = "prefix_cache_share_generated",
         .help = "let a prompt that holds an earlier completion reuse its keys "
                 "and values where prompts are computed in bf16 (CPUs with "
                 "AMX): faster next turns, whose results depend on what is "
                 "cached; without effect elsewhere"},
        &s.prefix_cache_share_generated);
  visit({.name = "kv_cache_dir",
         .help = "folder where keys and values of full pages are kept, so that "
                 "the prefix cache outlives eviction, restarts and kills; "
                 "empty: nowhere. The files tell what prompts said"},
        &s.kv_cache_dir);
  visit({.name = "kv_cache_dir_max_size",
         .help = "most bytes of a model's files in kv_cache_dir; least "
                 "recently used ones make room",
         .unit = Unit::kBytes,
         .min = 1,
         .max = int64_t{1} << 50},
        &s.kv_cache_dir_max_bytes);
  visit({.name = "kv_cache_dtype",
         .help = "numbers that keys and values are kept in; int8 has a scale "
                 "for each head of a token; auto is f16, q8_0 is int8",
         .choices = {"f16", "int8", "f32", "auto", "q8_0"},
         .aliases = {{"ctk", {}, true},
                     {"ctv", {}, true},
                     {"cache_type_k"},
                     {"cache_type_v"}}},
        &s.kv_cache_dtype);
  visit({.name = "compute_dtype",
         .help = "activations: auto: int8 where weights are quantised, bf16 "
                 "where they are and the CPU multiplies such; on CPUs with AMX "
                 "bf16 for all rows of prompts; int8: as auto, but int8 for "
                 "prompts too; int16: finer ones, a long prompt takes twice as "
                 "long; f32: everything in f32. On a GPU auto has rows of "
                 "prompts in f16 or bf16 and others in int8 where weights are "
                 "quantised",
         .choices = {"auto", "int8", "int16", "f32"}},
        &s.compute_dtype);
  visit({.name = "quantize",
         .help = "round weights in F32, F16 or BF16 to a smaller type while "
                 "loading; embedding and head get 8 bits",
         .choices = {"none", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"}},
        &s.quantize);
  visit({.name = "gpu_memory_utilization",
         .help = "share of a GPU's memory that weights, the KV cache and a "
                 "step may take together, above 0 to 1"},
        &s.gpu_memory_utilization);
  visit({.name = "enforce_eager",
         .help = "on a GPU, launch the kernels of each step one by one instead "
                 "of running steps of generated tokens as CUDA graphs"},
        &s.enforce_eager);
  visit({.name = "async_scheduling",
         .help = "on a GPU, launch the next step before the tokens of the "
                 "running one are read"},
        &s.async_scheduling);
  visit({.name = "gemm_backend",
         .help = "on a GPU, what multiplies prompts by weights in F16 or BF16, "
                 "and rows by weights in graphs: native: this program's "
                 "kernels; cublaslt: NVIDIA's library, native where it is "
                 "absent",
         .choices = {"native", "cublaslt"}},
        &s.gemm_backend);
  visit({.name = "huge_pages", .help = "ask for huge pages for the weights"},
        &s.huge_pages);
}

void VisitText(LlmSettings& s, const SettingVisitor& visit) {
  visit({.name = "chat_template",
         .help = "file with a Jinja template instead of the model's own",
         .aliases = {{"chat_template_file"}}},
        &s.chat_template);
  visit({.name = "tool_call_parser",
         .help = "how the model writes tool calls: hermes (also Qwen), "
                 "llama3_json, pythonic, mistral, granite, deepseek_v3, "
                 "deepseek_v31, gemma, gemma4, harmony (gpt-oss) or none; "
                 "auto: as the "
                 "chat template says"},
        &s.tool_call_parser);
  visit({.name = "reasoning_parser",
         .help = "how the model marks its reasoning: think (<think> tags), "
                 "deepseek_r1 (begins without a tag), mistral, granite or "
                 "none; auto: as the chat template says"},
        &s.reasoning_parser);
  visit(
      {.name = "generation_config",
       .help =
           "sampling of requests that leave it out; auto: as the model "
           "folder's generation_config.json or the GGUF file says, else as "
           "its makers advise; none or vllm: ignores those; else a folder with "
           "another generation_config.json"},
      &s.generation_config);
  visit({.name = "override_generation_config",
         .help = "single fields of it as JSON, such as "
                 "{\"temperature\": 0.5}; a request's own fields win"},
        &s.override_generation_config);
  visit({.name = "lora_modules",
         .help = "LoRA adapters to load with the model, NAME=PATH each, "
                 "separated by commas: a folder of PEFT or a GGUF file; a "
                 "request chooses one by naming it as its model"},
        &s.lora_modules);
  visit({.name = "lora_dtype",
         .help = "numbers that LoRA adapters are kept in on CPUs: auto: f16, "
                 "or f32 with compute_dtype f32; int8: half of f16's memory, "
                 "with a scale for each 32 values, but slower; "
                 "float16 is f16, bfloat16 is bf16",
         .choices = {"auto", "f16", "bf16", "f32", "int8", "float16",
                     "bfloat16"}},
        &s.lora_dtype);
  visit({.name = "logits_processor_pattern",
         .help = "regular expression that the names in a request's "
                 "logits_processors must match from their beginning on; empty: "
                 "all that the server has may be named"},
        &s.logits_processor_pattern);
  visit({.name = "limit_mm_per_prompt",
         .help = "most images of a request to a model that takes images, as "
                 "image=N or {\"image\": N}"},
        &s.limit_mm_per_prompt);
  visit({.name = "max_pixels",
         .help = "most pixels of an image in a chat; larger ones are refused "
                 "before they are decoded",
         .min = 1,
         .max = int64_t{1} << 30},
        &s.max_image_pixels);
  visit({.name = "mmproj",
         .help = "GGUF file with the encoder of images of a language model "
                 "that is a GGUF file itself (llama.cpp's mmproj)"},
        &s.mmproj);
}

void VisitTensorParallel(LlmSettings& s, const SettingVisitor& visit) {
  visit({.name = "tensor_parallel_size",
         .help = "processes that serve a language model together, each with a "
                 "part of its weights: mpirun -np N millrace serve MODEL "
                 "--tensor-parallel-size N; with --device cuda each on a GPU, "
                 "by NCCL (a prototype that never ran on GPUs); 1: one alone",
         .min = 1,
         .max = 64,
         .aliases = {{"tp", {}, true}, {"tp_size"}}},
        &s.tensor_parallel_size);
  visit({.name = "tensor_parallel_timeout",
         .help = "how long a process waits for the others within a step before "
                 "all of them end",
         .unit = Unit::kMilliseconds,
         .min = 100,
         .max = 3'600'000},
        &s.tensor_parallel_timeout_ms);
}

}  // namespace

void VisitLlmSettings(LlmSettings& s, const SettingVisitor& visit) {
  VisitSequences(s, InGroup("language models", visit));
  VisitText(s, InGroup("language models", visit));
  VisitMemory(s, InGroup("memory and number types of language models", visit));
  VisitSpeculation(s, InGroup("speculative decoding", visit));
  VisitTensorParallel(s, InGroup("tensor parallel", visit));
}

void VisitGraphSettings(GraphSettings& s, const SettingVisitor& visit) {
  VisitPrecision(s, InGroup("graphs (ONNX, .pt2)", visit));
  VisitBatchSettings(s, InGroup("batching of graphs", visit));
}

void VisitModelSettings(ModelSettings& settings, const SettingVisitor& visit) {
  VisitCommonSettings(settings.common, InGroup("all models", visit));
  VisitLlmSettings(settings.llm, visit);
  VisitGraphSettings(settings.graph, visit);
}

void VisitSettings(Settings& settings, const SettingVisitor& visit) {
  VisitServerSettings(settings.server, visit);
  VisitCommonSettings(settings.common, InGroup("all models", visit));
  VisitLlmSettings(settings.llm, visit);
  VisitGraphSettings(settings.graph, visit);
  visit({.name = "served_model_name",
         .group = "all models",
         .help = "further ids of the model, separated by commas; * is any id "
                 "that no model has, as llama.cpp's server answers; with "
                 "several models, say it under `models` in the file",
         .aliases = {{"alias"}, {"a", {}, true}}},
        &settings.served_model_name);
}

}  // namespace millrace::config
