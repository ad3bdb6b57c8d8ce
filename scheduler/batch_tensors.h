// The tensors of several requests as those of one batch, and back: rows are
// joined along the first dimension.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/tensor.h"

namespace millrace::scheduler {

// The first dimension that all inputs have in common. INVALID_ARGUMENT names
// an input without one, or two that differ.
StatusOr<int32_t> RowsOf(const std::vector<models::Tensor>& inputs,
                         const std::vector<std::string>& names);

// Equal for inputs that can be joined: types and sizes but for the first
// dimension.
std::string KindOf(const std::vector<models::Tensor>& inputs);

// [r0 + r1 + …, rest] of each input from [r0, rest], [r1, rest], …: copies.
// All are of one kind.
std::vector<models::Tensor> JoinRows(
    const std::vector<const std::vector<models::Tensor>*>& parts);

// The outputs of each part, which borrow from the batch's. INTERNAL when an
// output does not have the rows of the batch.
StatusOr<std::vector<std::vector<models::Tensor>>> PartRows(
    std::vector<models::Tensor> outputs, const std::vector<int32_t>& rows);

}  // namespace millrace::scheduler
