#include "models/graph/plan/onednn_layers.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace millrace::models::graph {
namespace {

using onednn::LayerArgs;
using onednn::LayerSizes;
using onednn::Type;

const char* NameOf(Type type) {
  return type == Type::kU8 ? "u8" : type == Type::kBf16 ? "bf16" : "f32";
}

// Memory aligned as packed weights and scratch want it; null where there is not
// as much.
class Aligned {
 public:
  explicit Aligned(int64_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(
            64, static_cast<size_t>(std::max<int64_t>(bytes, 1) + 63) / 64 *
                    64))) {}
  ~Aligned() { std::free(data_); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* const data_;
};

// Values of [-1, 1), or any bytes.
std::vector<std::byte> RandomValues(int64_t count, Type type,
                                    std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * BytesOf(type)));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const float value = uniform(random);
    if (type == Type::kU8) {
      bytes[i] = static_cast<std::byte>(random() & 0xff);
    } else if (type == Type::kBf16) {
      std::memcpy(bytes.data() + 2 * i,
                  reinterpret_cast<const std::byte*>(&value) + 2, 2);
    } else {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    }
  }
  return bytes;
}

// Random operands of a product of kTileRows[0] rows, and its results.
class Trial {
 public:
  Trial(const LayerSizes& sizes, const onednn::Layer& layer)
      : sizes_(sizes),
        random_(static_cast<uint32_t>(sizes.n * 31 + sizes.k)),
        x_(RandomValues(kRows * sizes.k, sizes.x, random_)),
        residual_(RandomValues(kRows * sizes.n, Residual(), random_)),
        gate_(RandomValues(kRows * sizes.n, Type::kF32, random_)),
        bias_(RandomValues(sizes.n, Type::kF32, random_)),
        scales_(static_cast<size_t>(sizes.n), 1e-3f),
        packed_(layer.packed_bytes()) {
    const std::vector<std::byte> weights =
        RandomValues(sizes.n * sizes.k,
                     sizes.x == Type::kU8 ? Type::kU8 : Type::kF32, random_);
    is_packed_ =
        packed_.data() != nullptr && layer.Pack(weights.data(), packed_.data());
  }

  // Whether tiles of all heights give each row the same bits.
  bool RowsStandAlone(const ProductTiles& tiles) {
    std::vector<int64_t> order(kRows);
    for (int64_t i = 0; i < kRows; ++i) {
      order[static_cast<size_t>(i)] = i;
    }
    std::vector<std::byte> want;
    if (!is_packed_ || !Run(*tiles[0], kTileRows[0], order, want)) return false;
    for (size_t i = 0; i < tiles.size(); ++i) {
      const int64_t rows = kTileRows[i];
      // Neighbours and places of their own for each height.
      for (int64_t r = 0; r < rows; ++r) {
        order[static_cast<size_t>(r)] =
            (r * 5 + 13 + static_cast<int64_t>(i)) % kRows;
      }
      std::vector<std::byte> got;
      if (!Run(*tiles[i], rows, order, got)) return false;
      const auto each = static_cast<size_t>(sizes_.n * BytesOf(sizes_.y));
      for (int64_t r = 0; r < rows; ++r) {
        const auto of = static_cast<size_t>(order[static_cast<size_t>(r)]);
        if (std::memcmp(got.data() + static_cast<size_t>(r) * each,
                        want.data() + of * each, each) != 0) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kRows = kTileRows[0];

  Type Residual() const {
    return sizes_.residual == Type::kNone ? Type::kU8 : sizes_.residual;
  }

  static std::vector<std::byte> Take(const std::vector<std::byte>& rows,
                                     const std::vector<int64_t>& order,
                                     int64_t count) {
    const size_t each = rows.size() / kRows;
    std::vector<std::byte> taken;
    for (int64_t i = 0; i < count; ++i) {
      const auto from = rows.begin() + static_cast<int64_t>(each) *
                                           order[static_cast<size_t>(i)];
      taken.insert(taken.end(), from, from + static_cast<int64_t>(each));
    }
    return taken;
  }

  // The first `rows` of `order`.
  bool Run(const onednn::Layer& layer, int64_t rows,
           const std::vector<int64_t>& order, std::vector<std::byte>& y) const {
    const std::vector<std::byte> x = Take(x_, order, rows);
    const std::vector<std::byte> residual = Take(residual_, order, rows);
    const std::vector<std::byte> gate = Take(gate_, order, rows);
    y.resize(static_cast<size_t>(rows * sizes_.n * BytesOf(sizes_.y)));
    LayerArgs args{.x = x.data(),
                   .weights = packed_.data(),
                   .bias = reinterpret_cast<const float*>(bias_.data()),
                   .residual = residual.data(),
                   .gate = reinterpret_cast<const float*>(gate.data()),
                   .y = y.data(),
                   .scales = scales_.data(),
                   .x_zero = 7,
                   .y_zero = 3};
    if (sizes_.x == Type::kU8 && sizes_.residual != Type::kNone) {
      y = residual;
      args.y = y.data();
      args.residual = args.y;
    }
    const Aligned scratch(layer.scratch_bytes());
    if (scratch.data() == nullptr) return false;
    args.scratch = scratch.data();
    return layer.Run(args);
  }

  const LayerSizes sizes_;
  std::mt19937 random_;
  const std::vector<std::byte> x_;
  const std::vector<std::byte> residual_;
  const std::vector<std::byte> gate_;
  const std::vector<std::byte> bias_;
  const std::vector<float> scales_;
  const Aligned packed_;
  bool is_packed_ = false;
};

std::string Pair(int64_t a, int64_t b) {
  return std::to_string(a) + "x" + std::to_string(b);
}

}  // namespace

std::string ShapeText(const LayerSizes& s) {
  std::string text = NameOf(s.x);
  if (s.kind == onednn::Kind::kProduct) {
    return text + " product " + std::to_string(s.k) + " -> " +
           std::to_string(s.n);
  }
  text += " convolution " + Pair(s.height, s.width) + "x" +
          std::to_string(s.channels) + " -> " +
          Pair(s.out_height, s.out_width) + "x" + std::to_string(s.outputs) +
          " kernel " + Pair(s.kernel_h, s.kernel_w);
  if (s.groups > 1) text += ", " + std::to_string(s.groups) + " groups";
  return text;
}

const ProductTiles* OneDnnLayers::FindProduct(LayerSizes sizes) {
  sizes.rows = 0;
  MutexLock lock(mu_);
  const auto [found, is_new] = products_.try_emplace(sizes);
  if (!is_new) return found->second.get();
  auto tiles = std::make_unique<ProductTiles>();
  for (size_t i = 0; i < tiles->size(); ++i) {
    sizes.rows = kTileRows[i];
    (*tiles)[i] = library_.Make(sizes, (*tiles)[0].get());
    if ((*tiles)[i] == nullptr) return nullptr;
  }
  if (Trial(sizes, *(*tiles)[0]).RowsStandAlone(*tiles)) {
    found->second = std::move(tiles);
  }
  return found->second.get();
}

const onednn::Layer* OneDnnLayers::FindConvolution(const LayerSizes& sizes,
                                                   const onednn::Layer* like) {
  MutexLock lock(mu_);
  const auto [found, is_new] =
      convolutions_.try_emplace(std::pair(sizes, like));
  if (is_new) found->second = library_.Make(sizes, like);
  return found->second.get();
}

}  // namespace millrace::models::graph
