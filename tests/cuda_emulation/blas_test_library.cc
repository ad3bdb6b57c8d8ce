#include "tests/cuda_emulation/blas_test_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>

namespace millrace::models {
namespace {

const char* FileOf(const char* variable, const char* otherwise) {
  const char* other = std::getenv(variable);
  return other != nullptr ? other : otherwise;
}

int Ask(const char* function) {
  void* library = dlopen(FAKE_CUBLASLT, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  return reinterpret_cast<int (*)()>(dlsym(library, function))();
}

}  // namespace

bool OnEmulatedGpu() {
  return std::getenv("MILLRACE_TEST_CUDA_MODULE") == nullptr;
}

BlasEnvironment::BlasEnvironment() {
  setenv("MILLRACE_CUDA_MODULE",
         FileOf("MILLRACE_TEST_CUDA_MODULE", EMULATED_MODULE), 1);
  setenv("MILLRACE_CUBLASLT", FileOf("MILLRACE_TEST_CUBLASLT", FAKE_CUBLASLT),
         1);
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
