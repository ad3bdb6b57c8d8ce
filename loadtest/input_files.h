// Files whose content is sent: tensors, pictures, bodies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "loadtest/dataset.h"

namespace millrace::loadtest {

// All that is read of a folder, or of the pictures of a data set.
inline constexpr int64_t kMostInputBytes = int64_t{1} << 30;

// The file at `path`, or those of the folder there, by name, hidden ones left
// out. `flag` stands in errors.
StatusOr<std::vector<std::string>> FilesAt(std::string_view flag,
                                           const std::string& path);

// Puts the pictures that a data set names, by paths relative to `folder`, into
// it as data URIs. Addresses (http, https, data) stay as they are.
Status InlineImages(const std::string& folder, Dataset& dataset);

// "image/png" by the first bytes; empty if it is no picture.
std::string_view ImageType(std::string_view bytes);

}  // namespace millrace::loadtest
