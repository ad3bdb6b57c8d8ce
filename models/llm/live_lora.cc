#include "models/llm/live_lora.h"

#include <utility>

namespace millrace::models {

LiveLora::LiveLora(std::shared_ptr<const LoraAdapter> adapter)
    : as_loaded_(std::move(adapter)), scaled_(as_loaded_) {}

std::shared_ptr<const LoraAdapter> LiveLora::Get() const {
  MutexLock lock(mu_);
  return scaled_;
}

float LiveLora::scale() const {
  MutexLock lock(mu_);
  return scale_;
}

Status LiveLora::SetScale(float scale) {
  MutexLock lock(mu_);
  if (scale == scale_) return OkStatus();
  if (scale == 0 || scale == 1) {
    scaled_ = scale == 0 ? nullptr : as_loaded_;
  } else if (as_loaded_->on_device() != nullptr) {
    return Unimplemented("the adapter '" + as_loaded_->name() +
                         "' is on a GPU, where its scale is 0 or 1");
  } else {
    scaled_ = as_loaded_->Scaled(scale);
  }
  scale_ = scale;
  return OkStatus();
}

}  // namespace millrace::models
