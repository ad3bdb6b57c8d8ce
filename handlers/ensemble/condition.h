// Whether a step of an ensemble runs: a condition on the elements of a tensor.
#pragma once

#include "config/ensemble_settings.h"
#include "models/tensor/tensor.h"

namespace millrace::handlers {

// Whether any element compares so. Types without numbers never do.
bool AnyCompares(const models::Tensor& tensor,
                 config::StepCondition::Compare compare, double value);

}  // namespace millrace::handlers
