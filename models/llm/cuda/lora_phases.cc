// Adapters: beside y = W x of a phase, y += scale * B (A x) for rows whose
// sequence has one, in f32 whatever W is multiplied in and whatever the row's
// role: A reads x as it was before it was rounded.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "models/llm/cuda/cuda_backend.h"
#include "models/llm/cuda/cuda_linear.h"
#include "models/llm/cuda/pack_rows.h"

namespace millrace::models {
namespace {

// Never had one, rather than one that is gone.
bool IsEmpty(const std::weak_ptr<const LoraAdapter>& adapter) {
  const std::weak_ptr<const LoraAdapter> none;
  return !adapter.owner_before(none) && !none.owner_before(adapter);
}

}  // namespace

int64_t CudaLoraBytes(const BackendShape& shape, const StepLimits& limits) {
  const int64_t q = int64_t{shape.heads} * shape.head_dim;
  const int64_t rows = std::max(limits.max_tokens, limits.max_samples);
  const int64_t parts =
      std::max<int64_t>({3 * cuda::LoraSplits(shape.hidden),
                         cuda::LoraSplits(q), cuda::LoraSplits(shape.ffn)});
  const int64_t places =
      std::max(rows * cuda::kMostLoraTargets,
               std::min<int64_t>(rows, LoraStep::kMostSharedPlaces) * parts);
  return places * cuda::kMostLoraRank * 4;
}

Status CudaBackend::BindAdapters() {
  const std::string what = "the buffers of a step";
  const int64_t bytes = LoraStep::MostBytes(limits_);
  ASSIGN_OR_RETURN(lora_step_, context_->Allocate(bytes, what));
  for (Launched& launched : launched_) {
    ASSIGN_OR_RETURN(launched.adapter_message,
                     context_->AllocateHost(bytes, what));
  }
  ASSIGN_OR_RETURN(lora_hidden_,
                   context_->Allocate(CudaLoraBytes(shape(), limits_), what));
  return OkStatus();
}

void CudaBackend::SetAdapter(
    int32_t slot, const std::shared_ptr<const LoraAdapter>& adapter) {
  CHECK(adapter == nullptr || adapter->on_device() != nullptr,
        "an adapter is loaded for the device that runs it");
  adapter_of_slot_.resize(static_cast<size_t>(limits_.max_seqs));
  adapter_of_slot_[static_cast<size_t>(slot)] = adapter;
}

void CudaBackend::Adapt(const Linear& linear,
                        std::span<const LoraTarget> targets) {
  const auto q = static_cast<int32_t>(q_dim_);
  const auto kv = static_cast<int32_t>((qkv_dim_ - q_dim_) / 2);
  const auto outputs = static_cast<int32_t>(linear.outputs());
  cuda::LoraArgs& args = static_cast<const CudaLinear&>(linear).lora;
  args.first_matrix = layer_ * static_cast<int32_t>(kNumLoraTargets) +
                      static_cast<int32_t>(targets.front());
  args.num_targets = static_cast<int32_t>(targets.size());
  args.inputs = static_cast<int32_t>(CudaInputs(linear.inputs()));
  args.f32 = compute_ == CudaCompute::kF32;
  args.targets[0] = {0, outputs};
  if (targets.size() == 2) {
    args.targets[0] = {0, outputs / 2};
    args.targets[1] = {outputs / 2, outputs / 2};
  } else if (targets.size() == 3) {
    args.targets[0] = {0, q};
    args.targets[1] = {q, kv};
    args.targets[2] = {q + kv, kv};
  }
}

Status CudaBackend::UploadAdapters(const StepBatch& batch) {
  Launched& launched = launched_[newest_];
  lora_.Clear();
  launched.adapters.clear();
  if (adapter_of_slot_.empty()) return OkStatus();
  lora_of_seq_.clear();
  for (int32_t seq = 0; seq < batch.num_seqs; ++seq) {
    const int32_t slot = batch.slot()[static_cast<size_t>(seq)];
    const auto& of_slot = adapter_of_slot_[static_cast<size_t>(slot)];
    const auto adapter = of_slot.lock();
    CHECK(adapter != nullptr || IsEmpty(of_slot),
          "an adapter lives as long as steps name its slot");
    lora_of_seq_.push_back(adapter == nullptr ? nullptr
                                              : static_cast<const CudaLora*>(
                                                    adapter->on_device()));
    if (adapter != nullptr) launched.adapters.push_back(adapter);
  }
  lora_.Fill(batch, lora_of_seq_, message_.padded ? message_.num_rows : 0,
             message_.all_sample, launched.adapter_message.data());
  if (!lora_.any()) return OkStatus();
  return context_->Upload(lora_step_.data(), launched.adapter_message.data(),
                          lora_.bytes());
}

bool CudaBackend::IsAdapted(const CudaLinear& linear) const {
  return lora_.any() && linear.lora.num_targets > 0;
}

int CudaBackend::AddAdapters(bool kept, const CudaLinear& w, const RowsAt& x,
                             const RowsOnDevice& y, float scale) {
  if (!IsAdapted(w)) return 0;
  const LoraStep::Rows& rows = kept ? lora_.samples() : lora_.rows();
  cuda::LoraArgs args = w.lora;
  args.tiles =
      reinterpret_cast<const cuda::LoraTile*>(lora_step_.data() + rows.tiles);
  args.num_tiles = rows.num_tiles;
  args.order = reinterpret_cast<const int32_t*>(lora_step_.data() + rows.order);
  args.most_rank = lora_.most_rank();
  args.x = x.data;
  args.pitch = x.pitch;
  args.shares_splits = rows.num_places <= LoraStep::kMostSharedPlaces;
  args.hidden = lora_hidden_.as<float>();
  args.scale = scale;
  args.y = y.data();
  args.out_pitch = y.pitch;
  return module_.add_lora(context_->device().stream, args);
}

}  // namespace millrace::models
