// A model loaded by a group whose ranks are threads of the test.
//
//   RankThreads ranks(2);                        // outlives the model
//   StatusOr<LlmModel> model = ranks.Load(path, options);
//   ...                                          // use model->runner
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "models/group/local_group.h"
#include "models/llm/model.h"

namespace millrace::models {

class RankThreads {
 public:
  explicit RankThreads(int32_t size);
  ~RankThreads();  // waits for the other ranks to end

  // Rank 0's; the other ranks follow its steps until it is destroyed.
  StatusOr<LlmModel> Load(const std::string& path, const LlmOptions& options);
  // Options of one rank, to make it differ.
  LlmOptions& options_of(int32_t rank) {
    return options_[static_cast<size_t>(rank)];
  }
  void Join();
  // How the load, or else the following, ended at each rank but the first.
  const std::vector<Status>& ends() const { return ends_; }

 private:
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<LlmOptions> options_;
  std::vector<Status> ends_;
  std::vector<std::thread> threads_;
};

}  // namespace millrace::models
