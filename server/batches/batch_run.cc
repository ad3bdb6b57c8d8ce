#include "server/batches/batch_run.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

namespace millrace::server {
namespace {

constexpr int64_t kLeastPauseMs = 20;
constexpr int64_t kMostPauseMs = 10'000;

// No place, loading, draining, or a client that left, which was us.
bool MayChange(int status) {
  return status == 429 || status == 503 || status == 499;
}

// Whole lines of `path`, told one by one; how many bytes they have. A line that
// cannot be read is where a kill or a power cut ended the file.
StatusOr<int64_t> ReadBack(
    const std::string& path,
    const std::function<void(const RecordedLine&)>& each) {
  if (!FileExists(path)) return 0;
  ASSIGN_OR_RETURN(const std::string text, ReadBytes(path));
  size_t at = 0;
  while (true) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const StatusOr<RecordedLine> line =
        ReadRecordedLine(std::string_view(text).substr(at, end - at));
    if (!line.ok()) break;
    each(*line);
    at = end + 1;
  }
  return static_cast<int64_t>(at);
}

}  // namespace

std::string BatchRun::OutputPath(const std::string& results) {
  return results + ".output.part";
}

std::string BatchRun::ErrorPath(const std::string& results) {
  return results + ".error.part";
}

StatusOr<std::unique_ptr<BatchRun>> BatchRun::Open(const Batch& batch,
                                                   FileStore* files,
                                                   const std::string& results) {
  RETURN_IF_ERROR(files->Find(batch.input_file_id, batch.tenant).status());
  ASSIGN_OR_RETURN(std::string input, files->Read(batch.input_file_id));
  std::vector<std::pair<RecordedLine, bool>> before;
  const auto keep = [&before](bool is_error) {
    return [&before, is_error](const RecordedLine& line) {
      before.emplace_back(line, is_error);
    };
  };
  ASSIGN_OR_RETURN(const int64_t output_bytes,
                   ReadBack(OutputPath(results), keep(false)));
  ASSIGN_OR_RETURN(const int64_t error_bytes,
                   ReadBack(ErrorPath(results), keep(true)));
  ASSIGN_OR_RETURN(AppendFile output,
                   AppendFile::Open(OutputPath(results), output_bytes));
  ASSIGN_OR_RETURN(AppendFile errors,
                   AppendFile::Open(ErrorPath(results), error_bytes));
  std::unique_ptr<BatchRun> run(new BatchRun(
      batch, files, std::move(input), std::move(output), std::move(errors)));
  for (const auto& [line, is_error] : before) run->Count(line, is_error);
  files->Refund(-(output_bytes + error_bytes));
  return run;
}

void BatchRun::Count(const RecordedLine& line, bool is_error) {
  answered_.insert(line.custom_id);
  ++(is_error ? failed_ : completed_);
  usage_.input_tokens += line.usage.input_tokens;
  usage_.cached_tokens += line.usage.cached_tokens;
  usage_.output_tokens += line.usage.output_tokens;
  usage_.reasoning_tokens += line.usage.reasoning_tokens;
}

std::optional<BatchLine> BatchRun::Next() {
  if (!HasNext()) return std::nullopt;
  BatchLine line = std::move(waiting_.front());
  waiting_.pop_front();
  return line;
}

bool BatchRun::HasNext() {
  if (!waiting_.empty()) return true;
  while (at_ < input_.size()) {
    const std::string_view rest = std::string_view(input_).substr(at_);
    const size_t end = std::min(rest.find('\n'), rest.size());
    at_ += std::min(end + 1, rest.size());
    // Each was checked when the batch was validated.
    StatusOr<BatchLine> line = ReadBatchLine(rest.substr(0, end), endpoint_);
    if (line.ok() && answered_.count(line->custom_id) == 0) {
      waiting_.push_back(*std::move(line));
      return true;
    }
  }
  return false;
}

int64_t BatchRun::Begin(BatchLine line) {
  running_.emplace(++last_ticket_, std::move(line));
  return last_ticket_;
}

Status BatchRun::Take(int64_t ticket, const LineAnswer& answer,
                      Clock::Time now) {
  const auto found = running_.find(ticket);
  CHECK(found != running_.end(), "each line ends once");
  BatchLine line = std::move(found->second);
  running_.erase(found);
  if (MayChange(answer.status)) {
    resume_at_ = now + std::chrono::milliseconds(std::clamp(
                           answer.retry_after_ms, kLeastPauseMs, kMostPauseMs));
    waiting_.push_back(std::move(line));
    return OkStatus();
  }
  const bool is_error = answer.status < 200 || answer.status > 299;
  const std::string text = AnswerLine(line.custom_id, answer);
  if (Status kept = Append(is_error ? errors_ : output_, text); !kept.ok()) {
    waiting_.push_back(std::move(line));
    return kept;
  }
  ASSIGN_OR_RETURN(const RecordedLine recorded,
                   ReadRecordedLine({text.data(), text.size() - 1}));
  Count(recorded, is_error);
  return OkStatus();
}

Status BatchRun::Append(AppendFile& file, const std::string& line) {
  const auto bytes = static_cast<int64_t>(line.size());
  RETURN_IF_ERROR(files_->Charge(bytes));
  const Status appended = file.Append(line);
  if (!appended.ok()) files_->Refund(bytes);
  return appended;
}

Status BatchRun::RecordRest(std::string_view code, std::string_view message) {
  while (std::optional<BatchLine> line = Next()) {
    RETURN_IF_ERROR(
        Append(errors_, UnansweredLine(line->custom_id, code, message)));
    Count({.custom_id = line->custom_id, .usage = {}}, true);
  }
  return OkStatus();
}

Status BatchRun::Sync() {
  RETURN_IF_ERROR(output_.Sync());
  return errors_.Sync();
}

}  // namespace millrace::server
