#include "tests/cuda_emulation/blas_test_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>

#include "tests/cuda_emulation/test_module.h"

namespace millrace::models {
namespace {

int Ask(const char* function) {
  void* library = dlopen(FAKE_CUBLASLT, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  return reinterpret_cast<int (*)()>(dlsym(library, function))();
}

}  // namespace

BlasEnvironment::BlasEnvironment() {
  setenv("MILLRACE_CUDA_MODULE", ModuleFile(), 1);
  const char* const real = std::getenv("MILLRACE_TEST_CUBLASLT");
  has_library_ = Emulated() || real != nullptr;
  if (has_library_) {
    setenv("MILLRACE_CUBLASLT", Emulated() ? FAKE_CUBLASLT : real, 1);
  }
}

BlasEnvironment::~BlasEnvironment() {
  for (const char* name :
       {"MILLRACE_CUDA_MODULE", "MILLRACE_CUBLASLT", "MILLRACE_FAKE_CUBLASLT",
        "MILLRACE_FAKE_CUBLASLT_VERSION"}) {
    unsetenv(name);
  }
}

void BlasEnvironment::Tell(const char* what) {
  setenv("MILLRACE_FAKE_CUBLASLT", what, 1);
}

int BlasEnvironment::Products() {
  return Ask("millrace_fake_cublaslt_products");
}
int BlasEnvironment::Alive() { return Ask("millrace_fake_cublaslt_alive"); }

}  // namespace millrace::models
