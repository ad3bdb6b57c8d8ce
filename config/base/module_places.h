// Where a module (.so) of this program may stand.
#pragma once

#include <string>
#include <vector>

namespace millrace {

// The path that the environment variable names, alone; where it is not set or
// empty, beside the program and in ../lib/millrace of its folder, in the order
// to try. No place where the program's own path is not known. For dlopen.
// Thread-safe.
std::vector<std::string> ModulePlaces(const char* variable, const char* file);

}  // namespace millrace
