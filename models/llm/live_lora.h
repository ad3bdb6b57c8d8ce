// An adapter whose scale may change between two requests, as llama.cpp's
// /lora-adapters changes it. A request keeps the scale that it began with.
//
//   LiveLora live(adapter);
//   RETURN_IF_ERROR(live.SetScale(0.5f));
//   task.adapter = live.Get();             // null at 0: the model as it is
//
// The weights are shared by all scales. Each change makes an adapter of another
// number, so that prompts computed with one scale are not found with another;
// a change back to 1 finds those of the beginning.
//
// Thread-safe.
#pragma once

#include <memory>

#include "config/base/mutex.h"
#include "config/base/status.h"
#include "models/llm/lora.h"

namespace millrace::models {

class LiveLora {
 public:
  explicit LiveLora(std::shared_ptr<const LoraAdapter> adapter);

  std::shared_ptr<const LoraAdapter> Get() const;
  float scale() const;
  // 0 and above. UNIMPLEMENTED for an adapter in a device's own memory, but for
  // 0 and 1.
  Status SetScale(float scale);

 private:
  const std::shared_ptr<const LoraAdapter> as_loaded_;
  mutable Mutex mu_;
  std::shared_ptr<const LoraAdapter> scaled_ GUARDED_BY(mu_);  // maybe null
  float scale_ GUARDED_BY(mu_) = 1;
};

}  // namespace millrace::models
