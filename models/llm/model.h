// A language model loaded from disk: everything that scheduler and handlers
// need of it.
//
//   ASSIGN_OR_RETURN(LlmModel model, LoadLlm("smollm2.gguf", options));
//
// Which file formats and families exist is decided by tables inside
// (families.cc); a file that cannot be served gives a Status that says why.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/group/group.h"
#include "models/llm/lora.h"
#include "models/llm/runner.h"
#include "models/text/chat_template.h"
#include "models/text/generation_defaults.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

struct LlmOptions {
  config::LlmSettings settings;
  std::string isa = config::CommonSettings{}.isa;  // kernel table
  std::string device = config::CommonSettings{}.device;
  config::CpuSet cpus;             // one worker each; empty: one, not pinned
  int64_t memory_limit_bytes = 0;  // what KV may be sized from; 0: unknown
  // Called from the loading thread with 0…1; may be empty.
  std::function<void(double)> progress;
  // The runner gives hidden rows, one for each token of a step if wanted, where
  // LogitsView shows logits otherwise; nothing is sampled.
  bool hidden_rows = false;
  // The runner's steps are given a page table for each page group of the model
  // (page_groups.h), and pages before windows are given back, so that there are
  // only as many pages as that needs. Else there is one group, and pages for
  // all tokens of the context.
  bool page_groups = false;
  // The ranks that load and run the model together, as many as
  // settings.tensor_parallel_size says; null: it is one.
  std::shared_ptr<Group> group = nullptr;
  // Called once at rank 0, on the engine's thread, when the group has lost a
  // rank; may be empty.
  std::function<void(const Status&)> on_group_broken = {};
};

struct LlmInfo {
  std::string architecture;  // "llama"
  std::string name;          // general.name of the file
  std::string quantization;  // "Q4_1", the type of most weights
  int64_t num_parameters = 0;
  int64_t file_bytes = 0;
  int64_t weight_bytes = 0;  // packed, in memory
  int64_t kv_bytes_per_token = 0;
  std::string kv_bound_by;  // what bounds the KV cache's size, for people
  int32_t trained_context = 0;
  std::string isa;  // kernel table in use
  int32_t threads = 0;
};

// Tokenizer and template are shared with requests that outlive an unload.
struct LlmModel {
  LlmInfo info;
  // At the ranks of a group but the first, for FollowSteps (group_runner.h).
  std::unique_ptr<Runner> runner;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: has none
  GenerationDefaults generation;  // what requests get that leave it out
  std::string generation_origin;  // where it is from, see ModelGeneration
  std::shared_ptr<const LoraBase> lora_base;  // what adapters are loaded for
  std::string bos_text;                       // what templates see as bos_token
  std::string eos_text;
  // ---- of texts that become vectors ----
  std::string pooling;    // "mean", "cls", "last"; "": the file does not say
  bool adds_eos = false;  // its end stands behind each text
  int32_t hidden = 0;     // numbers of a hidden row
  // The draft model that the settings name: its steps run between the model's
  // own, by the same thread on the same team. Null: none is named.
  std::unique_ptr<Runner> draft_runner;
  LlmInfo draft_info;
};

// A draft model (settings.speculative_model) has KV pages of its own, as many
// as the model; both come out of the memory for keys and values. It must have
// the model's vocabulary.
//
// Blocks for the load (≈ 0.3 s per 100 MB). The runner's Launch must later be
// called from one thread, which becomes worker 0 and pins itself at its first
// call.
StatusOr<LlmModel> LoadLlm(const std::string& path, const LlmOptions& options);

// Whether the model's files say that it makes vectors of texts, not texts: a
// pooling_type in a GGUF, a class that ends in "Model" or the files of
// sentence-transformers in a folder. False for what cannot be opened.
bool MakesVectors(const std::string& path);

// Writes the model in packed form (packed.h) for the kernels that these options
// choose. Loading that file gives the same bits as loading the original with
// the same options, sooner.
Status ConvertLlm(const std::string& path, const std::string& out,
                  const LlmOptions& options);

}  // namespace millrace::models
