// Objects begin with a header of TVM-FFI; the cell behind it holds what a
// string or an error says.
#include "models/grammar/tvm_ffi.h"

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>

#include <string>

namespace millrace::models {
namespace {

static_assert(sizeof(FfiAny) == sizeof(TVMFFIAny) &&
              offsetof(FfiAny, number) == offsetof(TVMFFIAny, v_int64) &&
              offsetof(FfiAny, small_size) ==
                  offsetof(TVMFFIAny, small_str_len));
static_assert(sizeof(FfiBytes) == sizeof(TVMFFIByteArray) &&
              offsetof(FfiBytes, size) == offsetof(TVMFFIByteArray, size));

template <typename T>
const T& CellOf(const void* object) {
  return *reinterpret_cast<const T*>(static_cast<const char*>(object) +
                                     sizeof(TVMFFIObject));
}

std::string TextOf(const TVMFFIByteArray& bytes) {
  return std::string(bytes.data, bytes.size);
}

// "[12:00:00] /project/cpp/file.cc:12: the sentence" loses its beginning.
std::string WithoutPlace(std::string message) {
  while (!message.empty() &&
         (message.back() == '\n' || message.back() == ' ')) {
    message.pop_back();
  }
  const size_t file = message.starts_with('[') ? message.find(".cc:") : 0;
  if (file == message.npos) return message;
  const size_t colon = message.find(": ", file);
  if (file != 0 && colon != message.npos) message.erase(0, colon + 2);
  // "Check failed: (its condition) is false: what is wrong"
  constexpr std::string_view kIsFalse = " is false: ";
  const size_t condition = message.find(kIsFalse);
  if (message.starts_with("Check failed: ") && condition != message.npos) {
    message.erase(0, condition + kIsFalse.size());
  }
  return message;
}

}  // namespace

StatusOr<TvmFfi> TvmFfi::Open(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return FailedPrecondition(::dlerror());
  TvmFfi ffi;
  const char* missing = nullptr;
  const auto look_up = [&]<typename F>(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  look_up(ffi.dec_ref, "TVMFFIObjectDecRef");
  look_up(ffi.type_index, "TVMFFITypeKeyToIndex");
  look_up(ffi.type_info, "TVMFFIGetTypeInfo");
  look_up(ffi.global, "TVMFFIFunctionGetGlobal");
  look_up(ffi.call, "TVMFFIFunctionCall");
  look_up(ffi.take_error, "TVMFFIErrorMoveFromRaised");
  look_up(ffi.make_string, "TVMFFIStringFromByteArray");
  look_up(ffi.make_bytes, "TVMFFIBytesFromByteArray");
  if (missing == nullptr) return ffi;
  return FailedPrecondition(path + " has no function " + missing);
}

FfiValue::FfiValue(int64_t number) {
  any_.type = kTVMFFIInt;
  any_.number = number;
}

FfiValue::FfiValue(bool truth) {
  any_.type = kTVMFFIBool;
  any_.number = truth ? 1 : 0;
}

FfiValue FfiValue::Tensor(void* dl_tensor) {
  FfiValue value;
  value.any_.type = kTVMFFIDLTensorPtr;
  value.any_.pointer = dl_tensor;
  return value;
}

FfiValue FfiValue::Take(const TvmFfi& ffi, const FfiAny& owned) {
  FfiValue value;
  value.ffi_ = &ffi;
  value.any_ = owned;
  return value;
}

FfiValue FfiValue::String(const TvmFfi& ffi, std::string_view text) {
  const FfiBytes bytes = {text.data(), text.size()};
  FfiAny any = {};
  CHECK(ffi.make_string(&bytes, &any) == 0, "a string can be made");
  return Take(ffi, any);
}

FfiValue FfiValue::Bytes(const TvmFfi& ffi, std::string_view text) {
  const FfiBytes bytes = {text.data(), text.size()};
  FfiAny any = {};
  CHECK(ffi.make_bytes(&bytes, &any) == 0, "bytes can be made");
  return Take(ffi, any);
}

FfiValue::~FfiValue() {
  if (any_.type >= kTVMFFIStaticObjectBegin) ffi_->dec_ref(any_.pointer);
}

FfiValue& FfiValue::operator=(FfiValue&& other) noexcept {
  std::swap(ffi_, other.ffi_);
  std::swap(any_, other.any_);
  return *this;
}

std::string FfiValue::text() const {
  if (any_.type == kTVMFFISmallStr) {
    return std::string(any_.small_text, any_.small_size);
  }
  if (any_.type != kTVMFFIStr) return {};
  return TextOf(CellOf<TVMFFIByteArray>(any_.pointer));
}

StatusOr<FfiValue> Call(const TvmFfi& ffi, FfiFunction function,
                        std::span<FfiAny> arguments) {
  FfiAny result = {};
  if (ffi.call(function, arguments.data(),
               static_cast<int32_t>(arguments.size()), &result) == 0) {
    return FfiValue::Take(ffi, result);
  }
  void* error = nullptr;
  ffi.take_error(&error);
  if (error == nullptr) return InvalidArgument("it failed without a word");
  const Status status = InvalidArgument(
      WithoutPlace(TextOf(CellOf<TVMFFIErrorCell>(error).message)));
  ffi.dec_ref(error);
  return status;
}

FfiFunction FindMethod(const TvmFfi& ffi, std::string_view type,
                       std::string_view method) {
  const FfiBytes key = {type.data(), type.size()};
  int32_t index = 0;
  if (ffi.type_index(&key, &index) != 0) return nullptr;
  const auto* info = static_cast<const TVMFFITypeInfo*>(ffi.type_info(index));
  for (int32_t i = 0; info != nullptr && i < info->num_methods; ++i) {
    const TVMFFIMethodInfo& found = info->methods[i];
    if (std::string_view(found.name.data, found.name.size) == method) {
      return found.method.v_obj;
    }
  }
  return nullptr;
}

}  // namespace millrace::models
