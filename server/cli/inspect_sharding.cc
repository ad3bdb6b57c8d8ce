#include "server/cli/inspect_sharding.h"

#include <cstdio>
#include <string>
#include <vector>

#include "models/llm/llm_plan.h"
#include "models/llm/sharding.h"

namespace millrace::server {
namespace {

constexpr int32_t kMostShown = 64;

}  // namespace

Status PrintSharding(const models::ModelSource& source, int32_t size) {
  ASSIGN_OR_RETURN(const models::LlmPlan plan, models::PlanLlm(source));
  const std::vector<int32_t> sizes =
      models::WorkingSizes(source, plan, kMostShown);
  std::string text;
  for (const int32_t each : sizes) text += " " + std::to_string(each);
  std::printf("\ntensor parallel of%s processes\n",
              text.empty() ? " no number of" : text.c_str());
  RETURN_IF_ERROR(models::ShardOf(source, plan, {.size = size}).status());
  std::printf("  %-36s %-14s %s\n", "tensor", "cut along",
              ("a rank of " + std::to_string(size) + " has").c_str());
  for (const models::TensorCut& line : models::ShardingTable(plan, size)) {
    std::string has;
    if (!line.unit.empty()) {
      has = std::to_string(line.of_rank) + " of " +
            std::to_string(line.of_all) + " " + line.unit;
    }
    std::printf("  %-36s %-14s %s\n", line.tensor.c_str(), line.cut.c_str(),
                has.c_str());
  }
  std::printf(
      "  sums over the ranks: 2 a layer, of %d values a token\n"
      "  KV cache: each rank keeps its own KV heads\n",
      plan.config.hidden);
  return OkStatus();
}

}  // namespace millrace::server
