// A shared library of NVIDIA's (cuBLASLt, cuDNN, NCCL) that is opened by dlopen
// when it is asked for, and the functions that are looked up in it. It is never
// closed: its threads and exit handlers are its own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace millrace::models {

// Used by one thread.
class VendorLibrary {
 public:
  // Opens the file that the environment variable names; where it is not set or
  // empty, the first of `files` that opens.
  VendorLibrary(const char* variable, std::initializer_list<const char*> files);

  bool is_open() const { return handle_ != nullptr; }
  const std::string& file() const { return file_; }  // the last one tried
  // Why the first file did not open, in the words of dlerror.
  const std::string& why() const { return why_; }

  // `function` becomes null where the library has none of that name.
  template <class Function>
  void Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(Look(name));
  }
  // The first name that was looked up and is not there; empty: none.
  const std::string& missing() const { return missing_; }

 private:
  void* Look(const char* name);

  void* handle_ = nullptr;
  std::string file_, why_, missing_;
};

// "9.1.2" of 90102, as all three number their versions.
std::string TextOfVersion(int64_t version);

}  // namespace millrace::models
