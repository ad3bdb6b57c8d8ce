// The CUDA module that tests of models and graphs run on: the emulated one, or
// on a machine with a GPU the one that MILLRACE_TEST_CUDA_MODULE names.
//
//   setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1);
//   if (!Emulated()) GTEST_SKIP() << "only the emulated GPU fails when told";
//   EmulatedFunction<void(int)>("fail_wait")(3);
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "config/base/status.h"

namespace millrace::models {

bool Emulated();
// Its path.
const char* ModuleFile();
// The emulated module, built beside the test.
const char* EmulatedModule();

// millrace_emulated_<name> of that module (emulated_entry.cc); null on a real
// GPU. The module stays open.
void* FindEmulated(const std::string& name);
template <typename F>
F* EmulatedFunction(const std::string& name) {
  return reinterpret_cast<F*>(FindEmulated(name));
}

// The value, or an exception with the error: the test fails, those behind it
// run.
template <typename T>
T Must(StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

}  // namespace millrace::models
