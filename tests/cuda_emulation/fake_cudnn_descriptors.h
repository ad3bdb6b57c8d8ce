// Backend descriptors of the library that stands in for cuDNN: which attributes
// each kind has, and what must hold when it is finalized, as cuDNN's interface
// documents them. Wrong use gets the error of the real one, is counted, and is
// printed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace fake_cudnn {

inline constexpr int kFine = 0;
inline constexpr int kNotInitialized = 1001;
inline constexpr int kBadParam = 2000;
inline constexpr int kNullPointer = 2002;
inline constexpr int kMisaligned = 2003;
inline constexpr int kNotFinalized = 2004;
inline constexpr int kOutOfBound = 2005;
inline constexpr int kShapeMismatch = 2008;
inline constexpr int kDuplicated = 2009;
inline constexpr int kWrongType = 2010;
inline constexpr int kWrongKind = 2012;
inline constexpr int kNotSupported = 3000;
inline constexpr int kExecutionFailed = 5000;

inline constexpr int kF32 = 0, kF16 = 2, kBf16 = 9;
inline int64_t BytesOf(int type) { return type == kF32 ? 4 : 2; }

using Sizes = std::vector<int64_t>;

struct Tensor {
  int64_t id = 0;
  int type = kF32;
  int64_t alignment = 0;
  Sizes dims, strides;
  bool is_virtual = false;
  bool operator==(const Tensor&) const = default;
};
struct Window {
  Sizes dilation, stride, pre, post;
};
struct Pointwise {
  int mode = 0;
  float lower = 0, upper = 3.402823466e+38f, slope = 0;
  float elu = 1, softplus = 1, swish = 1;
  std::optional<Tensor> b;
  Tensor x, y;
};
// What an operation graph computes: a convolution, then a chain.
struct Work {
  Tensor x, w, y;
  Window window;
  std::vector<Pointwise> chain;
  std::map<int64_t, Tensor> tensors;  // by id; those in memory
  int64_t groups() const { return x.dims[1] / w.dims[1]; }
  int64_t images() const { return x.dims[0]; }
};

struct Descriptor {
  explicit Descriptor(int of) : kind(of) {}
  const int kind;
  bool is_final = false;
  // As they were set: integers of all kinds; floats; pointers.
  std::map<int, Sizes> ints;
  std::map<int, float> floats;
  std::map<int, std::vector<void*>> pointers;
  // Of what is finalized.
  std::optional<Tensor> tensor;
  std::shared_ptr<const Work> work;  // of graphs and all that is made of one
  int64_t engine = -1;
  std::vector<std::pair<int, int64_t>> knobs;
};

// Says so, and returns the error.
int Wrong(int error, const char* why);
int WrongUses();
int Alive();  // descriptors that were made and not destroyed

int Create(int kind, void** made);
int Destroy(void* made);
// Null: there is no such.
Descriptor* Find(void* made);
int Set(void* made, int name, int type, int64_t count, const void* values);
// All but what engines decide: `support` looks at the rest.
int Finalize(void* made, int (*support)(const Descriptor&));
// Whether that kind has the attribute with this type, to be read.
bool IsReadable(int kind, int name, int type);

}  // namespace fake_cudnn
