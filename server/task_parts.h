// Parts of a task from BYTES tensors, as both wires carry them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "handlers/task.h"

namespace millrace::server {

// The one output of a task in the Open Inference Protocol: BYTES [results].
inline constexpr std::string_view kTaskOutput = "output";
// Where this is asked for, BYTES are a tensor, which the model's handler of
// tensors gets: the class of each token, as KServe has it.
inline constexpr std::string_view kClassesOutput = "output-0";

// Adds a part for each element: its length as four bytes, little-endian, then
// its bytes. INVALID_ARGUMENT names the input.
Status AddParts(const std::string& input, std::string_view packed,
                std::vector<handlers::TaskPart>& parts);

// Whether an item of a JSON list is what tasks over texts read themselves, an
// object with "text" or "query"; such a part says that it is JSON.
bool IsTextItem(const nlohmann::ordered_json& item);

// INVALID_ARGUMENT when the shape does not hold that many elements.
Status CheckElements(const std::string& input,
                     const std::vector<int64_t>& shape, size_t num_elements);

}  // namespace millrace::server
