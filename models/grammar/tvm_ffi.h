// The few parts of TVM-FFI's C interface that xgrammar.cc needs, looked up in a
// library that is opened while the program runs. The structs have the layout of
// those of the same purpose there, which the source checks.
//
// Source: tvm/ffi/c_api.h of the wheel apache-tvm-ffi.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/status.h"

namespace millrace::models {

// TVMFFIAny: a number, or a pointer to an object or a tensor, by its type.
struct FfiAny {
  int32_t type = 0;  // none
  uint32_t small_size = 0;
  union {
    int64_t number = 0;
    void* pointer;
    char small_text[8];
  };
};
// TVMFFIByteArray.
struct FfiBytes {
  const char* data;
  size_t size;
};
using FfiFunction = void*;  // TVMFFIObjectHandle of a function

// Functions of libtvm_ffi.so. Immutable after Open; thread-safe.
struct TvmFfi {
  // FAILED_PRECONDITION names what is missing. The library is never closed.
  static StatusOr<TvmFfi> Open(const std::string& path);

  int (*dec_ref)(void*) = nullptr;
  int (*type_index)(const FfiBytes*, int32_t*) = nullptr;
  const void* (*type_info)(int32_t) = nullptr;
  int (*global)(const FfiBytes*, FfiFunction*) = nullptr;
  int (*call)(FfiFunction, FfiAny*, int32_t, FfiAny*) = nullptr;
  void (*take_error)(void**) = nullptr;
  int (*make_string)(const FfiBytes*, FfiAny*) = nullptr;
  int (*make_bytes)(const FfiBytes*, FfiAny*) = nullptr;
};

// A value that passes to or from a function; owns its object, if it is one.
// The functions outlive it.
class FfiValue {
 public:
  FfiValue() = default;  // none
  explicit FfiValue(int64_t number);
  explicit FfiValue(bool truth);
  static FfiValue Tensor(void* dl_tensor);  // borrowed
  static FfiValue String(const TvmFfi& ffi, std::string_view text);
  static FfiValue Bytes(const TvmFfi& ffi, std::string_view bytes);
  static FfiValue Take(const TvmFfi& ffi, const FfiAny& owned);
  ~FfiValue();
  FfiValue(FfiValue&& other) noexcept
      : ffi_(other.ffi_), any_(std::exchange(other.any_, FfiAny{})) {}
  FfiValue& operator=(FfiValue&& other) noexcept;

  // Borrowed: lives as long as this value.
  const FfiAny& any() const { return any_; }
  bool truth() const { return any_.number != 0; }
  int64_t number() const { return any_.number; }
  std::string text() const;  // of a string

 private:
  const TvmFfi* ffi_ = nullptr;
  FfiAny any_ = {};
};

// Calls a function; its error becomes INVALID_ARGUMENT with its words.
StatusOr<FfiValue> Call(const TvmFfi& ffi, FfiFunction function,
                        std::span<FfiAny> arguments);

// A method of a type by its name, or null.
FfiFunction FindMethod(const TvmFfi& ffi, std::string_view type,
                       std::string_view method);

}  // namespace millrace::models
