// A running batch: the lines of its input that are not answered yet, and the
// files that its answers are appended to. What was appended before a kill is
// read back, so that nothing is answered twice.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "config/base/clock.h"
#include "config/base/status.h"
#include "server/batches/batch.h"
#include "server/batches/batch_line.h"
#include "server/batches/durable_file.h"
#include "server/batches/file_store.h"

namespace millrace::server {

class BatchRun {
 public:
  // `results` is where its results stand until it ends: results.output.part
  // and results.error.part.
  static StatusOr<std::unique_ptr<BatchRun>> Open(const Batch& batch,
                                                  FileStore* files,
                                                  const std::string& results);
  static std::string OutputPath(const std::string& results);
  static std::string ErrorPath(const std::string& results);

  const std::string& model() const { return model_; }

  // Whether there is a line that has no answer and is not under way.
  bool HasNext();
  // It; none at the end of the input.
  std::optional<BatchLine> Next();
  // A line of Next is under way; returns its ticket.
  int64_t Begin(BatchLine line);
  // Its answer came and is in the results once this returned. A refusal that
  // another try may change is none: the line waits for another turn.
  Status Take(int64_t ticket, const LineAnswer& answer, Clock::Time now);
  // The lines that are not answered go to the errors. None is under way.
  Status RecordRest(std::string_view code, std::string_view message);
  Status Sync();

  int num_running() const { return static_cast<int>(running_.size()); }
  // Nothing is to be started before.
  Clock::Time resume_at() const { return resume_at_; }
  int64_t completed() const { return completed_; }
  int64_t failed() const { return failed_; }
  const BatchUsage& usage() const { return usage_; }
  std::stop_source& stop() { return stop_; }  // of its lines

 private:
  BatchRun(const Batch& batch, FileStore* files, std::string input,
           AppendFile output, AppendFile errors)
      : endpoint_(batch.endpoint),
        model_(batch.model),
        files_(files),
        input_(std::move(input)),
        output_(std::move(output)),
        errors_(std::move(errors)) {}
  Status Append(AppendFile& file, const std::string& line);
  void Count(const RecordedLine& line, bool is_error);

  const std::string endpoint_;
  const std::string model_;
  FileStore* const files_;
  const std::string input_;
  size_t at_ = 0;  // in the input
  AppendFile output_;
  AppendFile errors_;
  std::unordered_set<std::string> answered_;  // custom ids
  std::deque<BatchLine> waiting_;
  std::unordered_map<int64_t, BatchLine> running_;
  int64_t last_ticket_ = 0;
  Clock::Time resume_at_ = Clock::Time::min();
  int64_t completed_ = 0;
  int64_t failed_ = 0;
  BatchUsage usage_;
  std::stop_source stop_;
};

}  // namespace millrace::server
