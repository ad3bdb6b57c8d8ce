// A message is [numbers of all of it][what it is][step…].
// Its first block has a fixed size, which most steps of few sequences fit into,
// so that one broadcast is enough for them.
#include "models/llm/group_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "models/llm/step_message.h"

namespace millrace::models {
namespace {

constexpr size_t kFirstBlock = 512;  // numbers: 2 KiB
constexpr size_t kHeader = 2;        // numbers of all, what it is
constexpr int32_t kMostNumbers = 1 << 28;
constexpr int32_t kStep = 1;
constexpr int32_t kEnd = 2;

std::span<std::byte> BytesOf(std::span<int32_t> numbers) {
  return std::as_writable_bytes(numbers);
}

// `message` is as long as a block at least.
Status Broadcast(Group& group, std::vector<int32_t>& message,
                 Patience patience) {
  RETURN_IF_ERROR(group.Broadcast(
      BytesOf(std::span(message).first(kFirstBlock)), patience));
  const auto length = static_cast<size_t>(message[0]);
  if (length < kHeader || message[0] > kMostNumbers) {
    return Internal("a message of rank 0 has a length of " +
                    std::to_string(message[0]));
  }
  message.resize(std::max(length, kFirstBlock));
  if (length <= kFirstBlock) return OkStatus();
  return group.Broadcast(BytesOf(std::span(message).subspan(kFirstBlock)),
                         Patience::kStep);
}

// The others wait for a rank that failed: it ends all.
Status Broken(const Status& own, const Group& group) {
  if (own.ok() || own.code() == StatusCode::kUnavailable) return own;
  return Unavailable(
      "rank " + std::to_string(group.rank()) +
      " of the tensor-parallel group failed: " + std::string(own.message()));
}

}  // namespace

GroupRunner::GroupRunner(std::unique_ptr<Runner> own,
                         std::shared_ptr<Group> group,
                         std::function<void(const Status&)> on_broken)
    : own_(std::move(own)),
      group_(std::move(group)),
      on_broken_(std::move(on_broken)) {}

std::string GroupRunner::device() const { return DeviceOf(*own_); }

GroupRunner::~GroupRunner() {
  message_.assign(kHeader, 0);
  // After a failure the other ranks cannot be reached; they end by themselves.
  if (status_.ok()) static_cast<void>(Tell(kEnd).ok());
}

Status GroupRunner::Tell(int32_t what) {
  message_[0] = static_cast<int32_t>(message_.size());
  message_[1] = what;
  message_.resize(std::max(message_.size(), kFirstBlock));
  return Broadcast(*group_, message_, Patience::kStep);
}

void GroupRunner::Launch(const StepBatch& batch) {
  if (!status_.ok()) return;
  message_.assign(kHeader, 0);
  WriteStep(batch, message_);
  status_ = Tell(kStep);
  if (status_.ok()) own_->Launch(batch);
}

StatusOr<const StepResult*> GroupRunner::Wait() {
  if (status_.ok()) {
    StatusOr<const StepResult*> result = own_->Wait();
    if (result.ok()) return result;
    status_ = result.status();
  }
  if (on_broken_) std::exchange(on_broken_, nullptr)(status_);
  return status_;
}

std::span<const float> GroupRunner::Logits(int32_t sample) const {
  return dynamic_cast<const LogitsView&>(*own_).Logits(sample);
}

Status FollowSteps(Runner& own, Group& group) {
  own.MeasureRoofline();  // it adapts to what it measures
  StepBatch batch(own.info().limits);
  std::vector<int32_t> message;
  while (true) {
    message.resize(std::max(message.size(), kFirstBlock));
    RETURN_IF_ERROR(Broadcast(group, message, Patience::kIdle));
    if (message[1] == kEnd) return OkStatus();
    const auto length = static_cast<size_t>(message[0]);
    RETURN_IF_ERROR(
        ReadStep(std::span(message).subspan(kHeader, length - kHeader), batch));
    own.Launch(batch);
    RETURN_IF_ERROR(Broken(own.Wait().status(), group));
  }
}

}  // namespace millrace::models
