// Layers of graphs computed by oneDNN, on the calling thread alone: a product
// of rows by a weight, or a convolution of one image, with a bias, a function,
// a residual and a gate behind it. oneDNN itself is behind a module that is
// opened when it is first asked for, so that a server without it lacks nothing.
//
//   ASSIGN_OR_RETURN(const onednn::Library* library, onednn::Open());
//   auto layer = library->Make({.rows = 64, .k = 768, .n = 3072}, nullptr);
//   layer->Pack(weights, packed);            // once: layer->packed_bytes()
//   layer->Run({.x = x, .weights = packed, .y = y, .scratch = scratch});
//
// What crosses this header is plain data and virtual functions: both sides come
// from one build.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "config/base/status.h"
#include "models/cpu/graph_kernels.h"

namespace millrace::models::onednn {

enum class Kind : int32_t { kProduct, kConvolution };
enum class Type : int32_t { kF32, kBf16, kU8, kNone };

// All that decides how a layer is computed. Rows, pixels and weights are dense;
// images stand channels last. Products of U8 have weights of S8.
struct LayerSizes {
  Kind kind = Kind::kProduct;
  Type x = Type::kF32;
  Type y = Type::kF32;

  // ---- of a product: x [rows][k], y [rows][n] ----
  int64_t rows = 0;
  int64_t k = 0;
  int64_t n = 0;
  bool weight_kn = false;  // the weight is [k][n], not [n][k]

  // ---- of a convolution: weight [outputs][channels / groups][kernel] ----
  int64_t height = 0, width = 0, channels = 0;
  int64_t out_height = 0, out_width = 0, outputs = 0;
  int64_t groups = 1;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;

  // ---- behind the sum, in this order ----
  bool has_bias = false;
  Type residual = Type::kNone;  // of y's sizes
  bool residual_first = false;  // before f
  Unary f = Unary::kNone;
  float a = 0;
  float b = 0;
  bool has_gate = false;  // f32, of y's sizes; before a residual that is last
  // Of U8: what the residual is multiplied by, once its zero is taken off it,
  // and what y is divided by.
  float residual_scale = 1;
  int32_t residual_zero = 0;
  float y_scale = 1;

  auto operator<=>(const LayerSizes&) const = default;
};

// Operands that the sizes do not have are not looked at.
struct LayerArgs {
  const void* x = nullptr;
  const void* weights = nullptr;  // packed, aligned to 64 bytes
  const float* bias = nullptr;
  const void* residual = nullptr;
  const float* gate = nullptr;
  void* y = nullptr;
  void* scratch = nullptr;  // scratch_bytes(), aligned to 64 bytes
  // Of U8: of each output; what stands for 0 in x and in y.
  const float* scales = nullptr;
  int32_t x_zero = 0;
  int32_t y_zero = 0;
};

// Immutable: threads may run one layer at the same time.
class Layer {
 public:
  virtual ~Layer() = default;
  virtual int64_t packed_bytes() const = 0;
  virtual int64_t scratch_bytes() const = 0;
  // From f32, or from S8 for a layer of U8. False: oneDNN failed, as in Run.
  virtual bool Pack(const void* weights, void* packed) const = 0;
  virtual bool Run(const LayerArgs& args) const = 0;
  // The implementation that oneDNN chose: "brg:avx512_core".
  virtual std::string Implementation() const = 0;
};

class Library {
 public:
  virtual ~Library() = default;
  // Null where oneDNN has no implementation made for this CPU. `like`, if not
  // null: weights that were packed for that layer serve this one, too.
  virtual std::unique_ptr<Layer> Make(const LayerSizes& sizes,
                                      const Layer* like) const = 0;
};

// FAILED_PRECONDITION says where the module was looked for. It stays open.
// $MILLRACE_ONEDNN_MODULE names its file; else it stands beside the program, or
// in ../lib/millrace. Thread-safe.
StatusOr<const Library*> Open();

// ---- the module ----
inline constexpr char kModuleFile[] = "libmillrace_onednn.so";
inline constexpr char kEntryName[] = "MillraceOneDnn";
// Raised whenever this header changes.
inline constexpr int32_t kVersion = 1;
// Null where the version is another one.
using Entry = const Library* (*)(int32_t version);

}  // namespace millrace::models::onednn
