// What millrace inspect says of an encoder of images (models/vision/mmproj.h).
#pragma once

#include <string>

#include "config/base/status.h"

namespace millrace::server {

// Whether the file is one. False where it cannot be read, too.
bool IsMmprojFile(const std::string& path);

// A line for people, or why it cannot serve.
StatusOr<std::string> DescribeMmproj(const std::string& path);

}  // namespace millrace::server
