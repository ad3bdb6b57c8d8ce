// What BYTES in a request of the Open Inference Protocol are to a model.
#pragma once

#include <algorithm>

#include "models/tensor/strings.h"
#include "server/lifecycle/servable.h"

namespace millrace::server {

// True: parts of its task (a picture each). False: a tensor, where it has no
// task, takes BYTES itself, or has a task over texts.
inline bool TakesParts(const Servable& model) {
  if (model.task() == nullptr || model.ForTexts().ok()) return false;
  const auto tensors = model.ForTensors();
  return !tensors.ok() ||
         std::ranges::none_of((*tensors)->inputs(), [](const auto& input) {
           return input.dtype == models::kString;
         });
}

}  // namespace millrace::server
