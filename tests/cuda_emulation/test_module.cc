#include "tests/cuda_emulation/test_module.h"

#include <dlfcn.h>

#include <cstdlib>

namespace millrace::models {
namespace {

const char* NamedModule() { return std::getenv("MILLRACE_TEST_CUDA_MODULE"); }

}  // namespace

bool Emulated() { return NamedModule() == nullptr; }

const char* EmulatedModule() { return EMULATED_MODULE; }

const char* ModuleFile() {
  return Emulated() ? EmulatedModule() : NamedModule();
}

void* FindEmulated(const std::string& name) {
  if (!Emulated()) return nullptr;
  void* const module = dlopen(EmulatedModule(), RTLD_NOW | RTLD_LOCAL);
  void* const found =
      module == nullptr ? nullptr
                        : dlsym(module, ("millrace_emulated_" + name).c_str());
  if (found == nullptr) throw std::runtime_error(name + " is not emulated");
  return found;
}

}  // namespace millrace::models
