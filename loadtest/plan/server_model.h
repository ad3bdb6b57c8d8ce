// What one server costs in time, as far as a simulation of a fleet needs it.
//
//   {"format": "millrace-server-model/1", "kind": "llm",
//    "step_base_ms": 6.1, "prompt_step_ms": 2.0, "prefill_token_ms": 0.09,
//    "decode_sequence_ms": 0.8, "attended_key_us": 0.02,
//    "tokens_per_step": [[1, 2.5], [16, 1.8]], "request_overhead_ms": 1.5,
//    "target_itl_ms": 150, "kv_tokens": 65536, "max_num_seqs": 64,
//    "max_num_batched_tokens": 512, "start_ms": 800}
//   {"format": "millrace-server-model/1", "kind": "graph",
//    "batch_ms": [[1, 4.2], [8, 20.1]], "max_batch_size": 8,
//    "max_queue_delay_ms": 1, "instance_count": 2}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/base/status.h"

namespace millrace::loadtest {

using Ns = int64_t;  // simulated time, from the start

struct ServerModel {
  bool graph = false;
  // Language models. One step of the engine takes
  //   base + (prompt_step + prefill_token x prompt tokens, if it has any)
  //   + decode_sequence x sequences x tokens_per_step
  //   + attended_key x keys, all that its rows look at.
  double step_base_ns = 0;
  double prompt_step_ns = 0;
  double prefill_token_ns = 0;
  double decode_sequence_ns = 0;
  double attended_key_ns = 0;
  // Tokens that a step gives each sequence, the accepted draft tokens among
  // them, by the sequences that decode, rising; straight lines between the
  // points, level outside of them. Empty: 1. A draft token costs what a
  // sequence does.
  std::vector<std::pair<int64_t, double>> tokens_per_step = {};
  // Of a request, outside of steps: network, parsing, tokenizing.
  Ns request_overhead_ns = 0;
  // Prompts leave room in steps that also decode so that these take no longer;
  // 0: no such rule.
  Ns target_itl_ns = 0;
  int64_t kv_tokens = 0;  // 0: no limit
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 512;
  // Graphs. Time of a batch by its rows, which rise; straight lines between the
  // points, and on from the last two, but never below what fewer rows took.
  std::vector<std::pair<int64_t, double>> batch_ns = {};
  int64_t max_batch_size = 1;
  Ns max_queue_delay_ns = 0;
  int64_t instance_count = 1;
  Ns start_ns = 0;  // until a new replica serves; 0: not known

  Ns StepNs(int64_t prefill_tokens, int64_t sequences, double keys) const;
  double TokensPerStep(int64_t sequences) const;
  // Prompt tokens that fit beside decodes that take decode_ns.
  int64_t MostPromptTokens(Ns decode_ns) const;
  Ns BatchNs(int64_t rows) const;
};

// INVALID_ARGUMENT names the key.
StatusOr<ServerModel> ParseServerModel(std::string_view json);
std::string ServerModelJson(const ServerModel& model);

}  // namespace millrace::loadtest
