// Operators that look at one element at a time.
#pragma once

#include <string_view>

namespace millrace::models::graph {

// One operand (and scalars beside it), one result of its shape.
bool IsElementwiseUnary(std::string_view op);
// Several operands broadcast to the shape of the one result.
bool IsElementwiseBroadcast(std::string_view op);

}  // namespace millrace::models::graph
