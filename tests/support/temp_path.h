// A file name that no other process of a test run uses: suites of several
// builds may run at once on one machine.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace millrace {

inline std::string TempPath(const std::string& name) {
  return testing::TempDir() + "millrace_" + std::to_string(getpid()) + "_" +
         name;
}

}  // namespace millrace
