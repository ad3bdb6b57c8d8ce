// A libcublasLt.so on the emulated module: products by plain loops, as work of
// the emulated stream. It refuses what the real one would: descriptors that are
// none, attributes it does not know or of another size, matrices of other
// types, rows that are not aligned as was said, a workspace that is too small.
//
// f32 is multiplied as it is, or rounded to tf32, as the real one may.
//
//   MILLRACE_FAKE_CUBLASLT_VERSION  what it says it is: 110805 for 11.8.5
//   MILLRACE_FAKE_CUBLASLT          one of
//       create     no handle can be made
//       none       there is no algorithm for any product
//       uneven     sums of the first algorithm are added in another order in
//                  the second half of a call's rows; those of the second are
//                  not
//       all_uneven so are those of all algorithms
//       matmul:N   the N-th product fails
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kFine = 0;
constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kExecutionFailed = 13;
constexpr int kNotSupported = 15;

constexpr int kF32 = 0;
constexpr int kF16 = 2;
constexpr int kBF16 = 14;
constexpr int kComputeF32 = 68;
constexpr int kComputeTf32 = 77;

constexpr uint64_t kMagic = 0x6d696c6c72616365;
constexpr size_t kWorkspace = 1 << 20;  // that the second algorithm needs

struct Algo {
  uint64_t magic;
  uint64_t id;  // 1, 2, ...
  int32_t splits;
  uint32_t reduction;
  uint64_t alignment;  // of all matrices
  uint64_t rest[4];
};
static_assert(sizeof(Algo) == 64);
struct Result {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
struct Layout {
  int type;
  uint64_t rows;
  uint64_t columns;
  int64_t pitch;
};
struct Desc {
  int compute = kComputeF32;
  int32_t transposes_a = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reduction = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

std::atomic<int> products = 0;
// Whatever was made and not destroyed. Calls come from several threads.
std::mutex guard;
std::set<const void*> alive;

bool Told(const std::string& what) {
  const char* text = std::getenv("MILLRACE_FAKE_CUBLASLT");
  return text != nullptr && what == text;
}

void Do(std::function<void()> work) {
  void* module =
      dlopen(std::getenv("MILLRACE_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
  void* found =
      module == nullptr ? nullptr : dlsym(module, "millrace_emulated_do");
  if (found == nullptr) {
    std::fprintf(stderr, "fake_cublaslt: the module is not the emulated one\n");
    std::abort();
  }
  reinterpret_cast<void (*)(std::function<void()>*)>(found)(&work);
}

template <typename T>
int Make(void** out, T value) {
  *out = new T(std::move(value));
  const std::lock_guard lock(guard);
  alive.insert(*out);
  return kFine;
}
template <typename T>
int Destroy(void* made) {
  const std::lock_guard lock(guard);
  if (alive.erase(made) == 0) return kInvalidValue;
  delete static_cast<T*>(made);
  return kFine;
}
template <typename T>
const T* Find(const void* made) {
  const std::lock_guard lock(guard);
  return alive.contains(made) ? static_cast<const T*>(made) : nullptr;
}

template <typename T>
int Set(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(&to, from, bytes);
  return kFine;
}
template <typename T>
int Get(const T& from, void* to, size_t bytes, size_t* written) {
  if (bytes < sizeof(T)) return kInvalidValue;
  std::memcpy(to, &from, sizeof(T));
  *written = sizeof(T);
  return kFine;
}

// To the nearest of 10 bits behind the point.
float RoundToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x1000) & ~0x1fffu;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

float ValueOf(const uint16_t bits, int type) {
  if (type == kF16) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof half);
    return static_cast<float>(half);
  }
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// D^T = B^T · A for A of k by n, transposed, and B of k by m.
struct Product {
  Layout a, b, d;
  bool rounds = false;  // f32 to tf32
  bool uneven = false;
};

// What a product with these matrices has, or the number of an error.
int Match(const void* desc, const void* a, const void* b, const void* c,
          const void* d, Product& product) {
  const auto* as = Find<Desc>(desc);
  const auto* first = Find<Layout>(a);
  const auto* second = Find<Layout>(b);
  const auto* out = Find<Layout>(d);
  if (as == nullptr || first == nullptr || second == nullptr ||
      out == nullptr || Find<Layout>(c) == nullptr) {
    return kInvalidValue;
  }
  product = {.a = *first, .b = *second, .d = *out};
  product.rounds = as->compute == kComputeTf32;
  const uint64_t k = first->rows;
  if (as->transposes_a != 1 || second->rows != k ||
      out->rows != first->columns || out->columns != second->columns) {
    return kInvalidValue;
  }
  const bool are_halves = first->type == kF16 || first->type == kBF16;
  if (first->type != second->type || out->type != kF32 ||
      (!are_halves && first->type != kF32) || (are_halves && product.rounds)) {
    return kNotSupported;
  }
  return kFine;
}

bool IsAligned(const void* at, const Layout& layout, uint64_t alignment) {
  const uint64_t bytes =
      static_cast<uint64_t>(layout.pitch) * (layout.type == kF32 ? 4 : 2);
  return reinterpret_cast<uintptr_t>(at) % alignment == 0 &&
         bytes % alignment == 0;
}

std::vector<float> Values(const void* at, const Layout& layout, bool rounds) {
  std::vector<float> values;
  values.reserve(layout.rows * layout.columns);
  for (uint64_t column = 0; column < layout.columns; ++column) {
    const uint64_t begin = column * static_cast<uint64_t>(layout.pitch);
    for (uint64_t i = begin; i < begin + layout.rows; ++i) {
      if (layout.type == kF32) {
        const float value = static_cast<const float*>(at)[i];
        values.push_back(rounds ? RoundToTf32(value) : value);
      } else {
        values.push_back(
            ValueOf(static_cast<const uint16_t*>(at)[i], layout.type));
      }
    }
  }
  return values;
}

// Eight sums beside each other, so that g++ makes vectors of them.
float Dot(const float* x, const float* y, uint64_t k, bool backwards) {
  float sums[8] = {};
  for (uint64_t i = 0; i + 8 <= k; i += 8) {
    for (uint64_t j = 0; j < 8; ++j) sums[j] += x[i + j] * y[i + j];
  }
  float sum = 0;
  for (int j = 0; j < 8; ++j) sum += sums[backwards ? 7 - j : j];
  for (uint64_t i = k / 8 * 8; i < k; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

extern "C" {

// Products that were asked for.
int millrace_fake_cublaslt_products() { return products; }
// Objects that were made and not destroyed.
int millrace_fake_cublaslt_alive() { return static_cast<int>(alive.size()); }

size_t cublasLtGetVersion() {
  const char* text = std::getenv("MILLRACE_FAKE_CUBLASLT_VERSION");
  return text == nullptr ? 130100 : static_cast<size_t>(std::atoll(text));
}

const char* cublasLtGetStatusString(int status) {
  return status == kNotInitialized    ? "the library was not initialized"
         : status == kExecutionFailed ? "the function failed to launch"
                                      : "an unsupported value";
}

int cublasLtCreate(void** handle) {
  if (Told("create")) return kNotInitialized;
  return Make(handle, 0);
}
int cublasLtDestroy(void* handle) { return Destroy<int>(handle); }

int cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if ((compute != kComputeF32 && compute != kComputeTf32) || scale != kF32) {
    return kNotSupported;
  }
  return Make(desc, Desc{.compute = compute});
}
int cublasLtMatmulDescDestroy(void* desc) { return Destroy<Desc>(desc); }
int cublasLtMatmulDescSetAttribute(void* made, int attribute, const void* from,
                                   size_t bytes) {
  if (Find<Desc>(made) == nullptr || attribute != 3) return kInvalidValue;
  return Set(static_cast<Desc*>(made)->transposes_a, from, bytes);
}

int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows,
                               uint64_t columns, int64_t pitch) {
  if (rows == 0 || columns == 0 || pitch < static_cast<int64_t>(rows)) {
    return kInvalidValue;
  }
  return Make(layout, Layout{type, rows, columns, pitch});
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  return Destroy<Layout>(layout);
}

int cublasLtMatmulPreferenceCreate(void** preference) {
  return Make(preference, Preference{});
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  return Destroy<Preference>(preference);
}
int cublasLtMatmulPreferenceSetAttribute(void* made, int attribute,
                                         const void* from, size_t bytes) {
  if (Find<Preference>(made) == nullptr) return kInvalidValue;
  auto& preference = *static_cast<Preference*>(made);
  switch (attribute) {
    case 1:
      return Set(preference.workspace, from, bytes);
    case 3:
      return Set(preference.reduction, from, bytes);
    case 5:
    case 6:
    case 7:
    case 8:
      return Set(preference.alignment[attribute - 5], from, bytes);
    default:
      return kInvalidValue;
  }
}

int cublasLtMatmulAlgoConfigGetAttribute(const Algo* algo, int attribute,
                                         void* to, size_t bytes,
                                         size_t* written) {
  if (algo->magic != kMagic) return kInvalidValue;
  if (attribute == 2) return Get(algo->splits, to, bytes, written);
  if (attribute == 3) return Get(algo->reduction, to, bytes, written);
  return kInvalidValue;
}

int cublasLtMatmulAlgoCheck(void* handle, void* desc, void* a, void* b, void* c,
                            void* d, const Algo* algo, Result* result) {
  Product product;
  if (Find<int>(handle) == nullptr || algo->magic != kMagic) {
    return kInvalidValue;
  }
  if (const int error = Match(desc, a, b, c, d, product)) return error;
  *result = {.algo = *algo,
             .workspace = algo->id == 2 ? kWorkspace : 0,
             .state = kFine,
             .waves = 1,
             .reserved = {}};
  return kFine;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* desc, void* a, void* b,
                                   void* c, void* d, void* wishes, int most,
                                   Result* results, int* count) {
  *count = 0;
  const auto* preference = Find<Preference>(wishes);
  if (preference == nullptr || most <= 0) return kInvalidValue;
  Product product;
  if (const int error = Match(desc, a, b, c, d, product)) return error;
  if (Told("none")) return kNotSupported;
  uint64_t alignment = 16;
  for (const uint32_t one : preference->alignment) {
    if (one < alignment) alignment = one;
  }
  if (alignment < 16) return kNotSupported;
  // The best one splits its sums, so it is for those who allow that alone.
  for (uint64_t id = 0; id < 3 && *count < most; ++id) {
    const bool splits = id == 0;
    if (splits && (preference->reduction & 1) == 0) continue;
    const Algo algo = {.magic = kMagic,
                       .id = id,
                       .splits = splits ? 4 : 1,
                       .reduction = splits ? 1u : 0u,
                       .alignment = alignment,
                       .rest = {}};
    Result result;
    cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, &algo, &result);
    if (result.workspace > preference->workspace) continue;
    results[(*count)++] = result;
  }
  return *count > 0 ? kFine : kNotSupported;
}

int cublasLtMatmul(void* handle, void* desc, const void* alpha, const void* a,
                   void* a_layout, const void* b, void* b_layout,
                   const void* beta, const void* c, void* c_layout, void* d,
                   void* d_layout, const Algo* algo, void* workspace,
                   size_t workspace_bytes, void*) {
  Product product;
  if (Find<int>(handle) == nullptr || algo->magic != kMagic) {
    return kInvalidValue;
  }
  if (const int error =
          Match(desc, a_layout, b_layout, c_layout, d_layout, product)) {
    return error;
  }
  if (!IsAligned(a, product.a, algo->alignment) ||
      !IsAligned(b, product.b, algo->alignment) ||
      !IsAligned(c, product.d, algo->alignment) ||
      !IsAligned(d, product.d, algo->alignment)) {
    return kInvalidValue;
  }
  if (algo->id == 2 && (workspace == nullptr || workspace_bytes < kWorkspace)) {
    return kInvalidValue;
  }
  float one, zero;
  std::memcpy(&one, alpha, sizeof one);
  std::memcpy(&zero, beta, sizeof zero);
  if (one != 1 || zero != 0) return kNotSupported;  // Millrace adds to no sums
  const int number = ++products;
  if (Told("matmul:" + std::to_string(number))) return kExecutionFailed;
  product.uneven =
      algo->id == 0 || Told("all_uneven") || (algo->id == 1 && Told("uneven"));
  Do([=] {
    const std::vector<float> weights = Values(a, product.a, product.rounds);
    const std::vector<float> rows = Values(b, product.b, product.rounds);
    const uint64_t k = product.a.rows;
    for (uint64_t row = 0; row < product.d.columns; ++row) {
      const bool backwards = product.uneven && row >= product.d.columns / 2;
      float* to =
          static_cast<float*>(d) + row * static_cast<uint64_t>(product.d.pitch);
      for (uint64_t output = 0; output < product.d.rows; ++output) {
        to[output] = Dot(weights.data() + output * k, rows.data() + row * k, k,
                         backwards);
      }
    }
    // The workspace holds nothing from one call to the next.
    if (workspace != nullptr) {
      std::memset(workspace, 0xff, 4096);
    }
  });
  return kFine;
}

}  // extern "C"
