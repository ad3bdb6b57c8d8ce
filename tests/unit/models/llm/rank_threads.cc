#include "tests/unit/models/llm/rank_threads.h"

#include "models/llm/group_runner.h"

namespace millrace::models {

RankThreads::RankThreads(int32_t size)
    : groups_(MakeLocalGroup(size)),
      options_(static_cast<size_t>(size)),
      ends_(static_cast<size_t>(size)) {}

RankThreads::~RankThreads() { Join(); }

void RankThreads::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

StatusOr<LlmModel> RankThreads::Load(const std::string& path,
                                     const LlmOptions& options) {
  const size_t size = groups_.size();
  for (size_t rank = 0; rank < size; ++rank) {
    // A test may have set the kernels of one rank.
    const std::string isa = options_[rank].isa;
    options_[rank] = options;
    if (isa != "auto") options_[rank].isa = isa;
    options_[rank].settings.tensor_parallel_size = static_cast<int64_t>(size);
    options_[rank].group = std::move(groups_[rank]);
  }
  for (size_t rank = 1; rank < size; ++rank) {
    threads_.emplace_back([this, path, rank] {
      const std::shared_ptr<Group> group = std::move(options_[rank].group);
      LlmOptions own = options_[rank];
      own.group = group;
      StatusOr<LlmModel> model = LoadLlm(path, own);
      ends_[rank] =
          model.ok() ? FollowSteps(*model->runner, *group) : model.status();
    });
  }
  LlmOptions own = std::move(options_[0]);
  return LoadLlm(path, own);
}

}  // namespace millrace::models
