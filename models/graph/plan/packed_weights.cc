#include "models/graph/plan/packed_weights.h"

#include <algorithm>
#include <utility>

#include "config/base/out_of_memory.h"

namespace millrace::models::graph {
namespace {

constexpr int64_t kChunkFloats = int64_t{8} << 20;
constexpr int64_t kLineFloats = 16;
// Below, waking the others costs as much as they would help.
constexpr int64_t kFewFloats = 1 << 15;

int64_t WholeLines(int64_t num_floats) {
  return (num_floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

PackedWeights::PackedWeights(WarmBuffer first)
    : first_(std::move(first)),
      next_(reinterpret_cast<float*>(first_.data())),
      left_(first_.size() / 4) {}

StatusOr<const float*> PackedWeights::FindOrMake(
    const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
    int64_t num_floats, const Fill& fill) {
  const Key key(weight.get(), form);
  MutexLock lock(mu_);
  if (const auto found = packed_.find(key); found != packed_.end()) {
    return found->second.floats;
  }
  ASSIGN_OR_RETURN(float* floats, Allocate(num_floats));
  if (Status filled = fill(weight->Aligned(), floats); !filled.ok()) {
    Free(num_floats);
    return filled;
  }
  // Rarely read again: by a plan that needs another form.
  weight->DropPages();
  packed_.emplace(key, Packed{weight, floats});
  bytes_ += num_floats * 4;
  return floats;
}

StatusOr<const PackedBytes*> PackedWeights::FindOrMakeBytes(
    const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
    const MakeBytes& make) {
  const Key key(weight.get(), form);
  MutexLock lock(mu_);
  if (const auto found = packed_.find(key); found != packed_.end()) {
    return &found->second.bytes;
  }
  BytesToPack todo = make();
  const int64_t num_floats = (todo.num_bytes + 3) / 4;
  ASSIGN_OR_RETURN(float* floats, Allocate(num_floats));
  auto* data = reinterpret_cast<int8_t*>(floats);
  if (Status filled = todo.pack(data); !filled.ok()) {
    Free(num_floats);
    return filled;
  }
  weight->DropPages();
  bytes_ += num_floats * 4;
  Packed& packed =
      packed_
          .emplace(key, Packed{.weight = weight,
                               .bytes = {data, std::move(todo.part_at),
                                         std::move(todo.sums)}})
          .first->second;
  return &packed.bytes;
}

int64_t PackedWeights::bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

StatusOr<const float*> WeightPacker::Get(
    const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
    int64_t num_floats, const PackedWeights::Fill& fill) {
  asked_.push_back(weight.get());
  return packed_.FindOrMake(weight, form, num_floats, fill);
}

StatusOr<const PackedBytes*> WeightPacker::GetBytes(
    const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
    const PackedWeights::MakeBytes& make) {
  asked_.push_back(weight.get());
  return packed_.FindOrMakeBytes(weight, form, make);
}

StatusOr<const float*> WeightPacker::GetByParts(
    const std::shared_ptr<const Tensor>& weight, const PackedForm& form,
    int64_t num_floats, const FillPart& fill) {
  return Get(weight, form, num_floats, [&](const Tensor& from, float* to) {
    if (pool_ == nullptr || num_floats < kFewFloats) {
      fill(from, to, Team{});
      return OkStatus();
    }
    std::vector<Status> parts(static_cast<size_t>(pool_->size()));
    pool_->Run([&](Worker& worker) {
      parts[static_cast<size_t>(worker.index())] = CatchOutOfMemory([&] {
        fill(from, to, Team{worker.index(), worker.count()});
        return OkStatus();
      });
    });
    for (Status& part : parts) RETURN_IF_ERROR(std::move(part));
    return OkStatus();
  });
}

StatusOr<float*> PackedWeights::Allocate(int64_t num_floats) {
  const int64_t wanted = WholeLines(num_floats);
  if (wanted > left_) {
    const int64_t chunk = std::max(wanted, kChunkFloats);
    ASSIGN_OR_RETURN(HugeBuffer buffer,
                     HugeBuffer::Allocate(chunk * 4, true, "graph weights"));
    next_ = reinterpret_cast<float*>(buffer.data());
    left_ = chunk;
    chunks_.push_back(std::move(buffer));
  }
  float* floats = next_;
  next_ += wanted;
  left_ -= wanted;
  return floats;
}

void PackedWeights::Free(int64_t num_floats) {
  next_ -= WholeLines(num_floats);
  left_ += WholeLines(num_floats);
}

}  // namespace millrace::models::graph
