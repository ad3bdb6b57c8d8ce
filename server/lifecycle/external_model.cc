#include "server/lifecycle/external_model.h"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "config/base/variable.h"

namespace millrace::server {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(2);

}  // namespace

StatusOr<std::shared_ptr<Servable>> ExternalModel::Create(
    ModelFacts facts, handlers::ExternalParts parts) {
  facts.platform = "millrace_external";
  parts.lender->Forget(facts.id);
  ASSIGN_OR_RETURN(std::unique_ptr<handlers::ExternalHandler> handler,
                   handlers::ExternalHandler::Create(std::move(parts)));
  return std::shared_ptr<Servable>(
      std::make_shared<ExternalModel>(std::move(facts), std::move(handler)));
}

ExternalModel::ExternalModel(ModelFacts facts,
                             std::unique_ptr<handlers::ExternalHandler> handler)
    : Servable(std::move(facts)), handler_(std::move(handler)) {}

StatusOr<handlers::GenerateHandler*> ExternalModel::ForText() const {
  return InvalidArgument("the model '" + id() +
                         "' is an external handler, which takes tensors or a "
                         "body; POST /v2/models/" +
                         id() + "/infer or /v1/tasks/" + id())
      .At("model")
      .Because("wrong_model_kind");
}

bool ExternalModel::Drain(std::chrono::steady_clock::time_point deadline) {
  bool by_itself = true;
  while (by_itself && handler_->in_flight() > 0) {
    by_itself = std::chrono::steady_clock::now() < deadline;
    std::this_thread::sleep_for(kLookAgain);
  }
  handler_->Close();
  return by_itself;
}

std::optional<ModelStatistics> ExternalModel::statistics() const {
  const handlers::ExternalCounts counts = handler_->counts();
  ModelStatistics stats;
  stats.last_inference_ms = counts.last_inference_ms;
  stats.inference_count = counts.num_success;
  stats.execution_count = counts.num_success;
  stats.success = {counts.num_success, counts.success_time.count()};
  stats.fail = {counts.num_failure, counts.failure_time.count()};
  stats.queue = {counts.num_success, counts.queue.count()};
  stats.compute_infer = {counts.num_success, counts.compute.count()};
  return stats;
}

std::string HandlersPath() {
  namespace fs = std::filesystem;
  if (const char* named = Variable("MILLRACE_HANDLERS")) return named;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = program.parent_path();
  for (const fs::path& path : {beside / "../share/millrace/handlers",
                               beside / "../lib/millrace/handlers",
                               beside / "../../../handlers/external/python"}) {
    if (fs::is_directory(path, error)) return fs::canonical(path, error);
  }
  return {};
}

}  // namespace millrace::server
