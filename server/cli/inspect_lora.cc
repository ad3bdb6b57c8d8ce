#include "server/cli/inspect_lora.h"

#include <cstdio>

#include "models/llm/llm_plan.h"
#include "models/llm/lora.h"
#include "models/llm/lora_inspect.h"
#include "models/llm/source.h"
#include "server/cli/clean_text.h"

namespace millrace::server {
namespace {

void Print(const std::string& path, const models::LoraDescription& told) {
  std::printf("%s: LoRA adapter, %s, %.1f MiB\n\n", path.c_str(),
              told.format.c_str(),
              static_cast<double>(told.file_bytes) / (1 << 20));
  std::printf("base model     %s\n",
              told.base.empty() ? "not said" : Clean(told.base).c_str());
  if (!told.family.empty()) {
    std::printf("family         %s\n", Clean(told.family).c_str());
  }
  if (told.alpha != 0) {
    std::printf("scale          alpha %g by the %srank\n", told.alpha,
                told.root ? "root of the " : "");
  }
  std::printf("\ntargets\n  %-32s %8s %8s %12s\n", "matrix", "count", "rank",
              "parameters");
  for (const auto& [name, target] : told.targets) {
    std::string rank = std::to_string(target.least_rank);
    if (target.greatest_rank > target.least_rank) {
      rank += "-" + std::to_string(target.greatest_rank);
    }
    std::printf("  %-32s %8lld %8s %12lld\n", Clean(name).c_str(),
                static_cast<long long>(target.matrices), rank.c_str(),
                static_cast<long long>(target.parameters));
  }
}

// All that loading checks.
Status FitsBase(const std::string& path, const std::string& base) {
  ASSIGN_OR_RETURN(const auto source, models::OpenModelSource(base));
  ASSIGN_OR_RETURN(const models::LlmPlan plan, models::PlanLlm(*source));
  return models::LoadLora(
             path, {.config = plan.config, .as_trained = source->as_trained()})
      .status();
}

}  // namespace

Status InspectLora(const std::string& path, const std::string& base) {
  ASSIGN_OR_RETURN(const models::LoraDescription told,
                   models::DescribeLora(path));
  Print(path, told);
  Status served = told.served;
  if (served.ok() && !base.empty()) served = FitsBase(path, base);
  if (served.ok()) {
    std::printf(
        "\nservable       yes%s: millrace serve %s --lora-modules "
        "NAME=%s\n",
        base.empty() ? ", beside a model that it fits" : "",
        base.empty() ? "MODEL" : base.c_str(), path.c_str());
    return OkStatus();
  }
  std::printf("\nservable       no: %s\n",
              Clean(served.message(), 1000).c_str());
  return FailedPrecondition("'" + path + "' cannot be served");
}

}  // namespace millrace::server
