// Whether a result is the one to expect.
#pragma once

#include <string>

#include "models/graph/interpreter.h"
#include "tests/conformance/onnx/case.h"

namespace millrace::models::graph {

// Empty when types and shapes are equal and every element is within
// atol + rtol * |want| (bfloat16: rtol is 2^-6 at least); NaN equals NaN. What
// is drawn at random is compared by type and shape alone.
std::string Difference(const RuntimeValue& got, const RuntimeValue& want,
                       const Case& one);

}  // namespace millrace::models::graph
