// A handler of TorchServe in Python: which file of an archive it is, and the
// process that runs it.
//
//   ASSIGN_OR_RETURN(auto parsed, ParsePythonHandler("h.py:work"));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "config/base/status.h"
#include "config/external_settings.h"

namespace millrace::server::torchserve {

// "h.py", "h" and "h.py:work" name a file of the archive, the last one a
// function of it, too.
struct PythonHandler {
  std::string file;
  std::string function = {};  // empty: the file's handle, or its class
};
// INVALID_ARGUMENT: a folder, or no name.
StatusOr<PythonHandler> ParsePythonHandler(std::string_view handler);

// The shipped adapter, run by the interpreter `python` in the archive's folder.
// Timeouts in seconds; 0: a day. `metrics_file` takes the lines of its metrics;
// empty: the server's log does.
std::shared_ptr<const config::ExternalSettings> PythonProcess(
    const std::string& python, const std::string& handler,
    int64_t startup_timeout_s, int64_t response_timeout_s,
    const std::string& metrics_file = {});

}  // namespace millrace::server::torchserve
