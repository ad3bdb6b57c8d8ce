// How the measuring verbs load a model: flags they share, the team they pin.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "config/base/status.h"
#include "config/schema.h"
#include "config/topology.h"
#include "models/llm/model.h"
#include "server/cli/args.h"

namespace millrace::server {

inline constexpr FlagSpec kThreadsFlag = {
    "threads", "N", "threads to compute with (default: as serve would take)"};
inline constexpr FlagSpec kIsaFlag = {
    "isa", "NAME", "kernel table: auto, or a name that topology lists"};
inline constexpr FlagSpec kDeviceFlag = {
    "device", "NAME", "where the model runs: cpu (default), cuda:0, or auto"};
inline constexpr FlagSpec kComputeFlag = {"compute-dtype", "TYPE",
                                          "auto, int8, int16 (finer), f32"};
inline constexpr FlagSpec kGemmFlag = {
    "gemm-backend", "NAME",
    "on a GPU, for prompts and graphs: native, or cublaslt"};
inline constexpr FlagSpec kQuantizeFlag = {
    "quantize", "TYPE",
    "round float weights to q8_0, q4_0, q4_1, q5_0 or q5_1"};
inline constexpr FlagSpec kKvFlag = {"kv-cache-dtype", "TYPE",
                                     "f16, int8 or f32"};

// Where stderr is a terminal, a line there that shows 0…1 as per cent.
std::function<void(double)> ProgressLine(const char* what);

// The same for work of minutes: where stderr is no terminal, a line for each
// tenth.
std::function<void(double)> ProgressLines(const char* what);

// The CPUs that a lone model with so many threads (0: as serve) would take.
StatusOr<config::CpuSet> TeamFor(int64_t threads);

struct ToolModel {
  models::LlmModel model;
  config::CpuSet team;
  int64_t memory_limit_bytes = 0;
};

// `settings` brings what the verb itself decides; flags override the rest. Says
// on stderr when --threads asks for more than there are cores.
StatusOr<ToolModel> LoadForTool(const std::string& path, const ParsedArgs& args,
                                config::LlmSettings settings);

}  // namespace millrace::server
