// Which module and which cuBLASLt tests run on: the emulated one and the
// library that stands in; on a machine with a GPU those that
// MILLRACE_TEST_CUDA_MODULE and MILLRACE_TEST_CUBLASLT name.
#pragma once

namespace millrace::models {

// For as long as it lives.
class BlasEnvironment {
 public:
  BlasEnvironment();
  ~BlasEnvironment();

  // False on a real GPU where MILLRACE_TEST_CUBLASLT names no library: tests
  // skip. One that is named and cannot be used fails them.
  bool has_library() const { return has_library_; }

  // What the library that stands in does from now on; see fake_cublaslt.cc.
  static void Tell(const char* what);
  // Products it was asked for, and objects that it made and has not destroyed.
  // 0 where it is another library.
  static int Products();
  static int Alive();

 private:
  bool has_library_ = false;
};

}  // namespace millrace::models
