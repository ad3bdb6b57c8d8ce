// Which layers of a graph oneDNN computes, and its primitives for them, made
// once and shared by all plans of the graph.
//
// A product of rows is cut into tiles of 64, 32, … and 1 rows. oneDNN promises
// nowhere that a row's bits do not depend on the height of its tile and its
// place in it, so each product is tried before it serves: random rows, turned
// round and in tiles of every height, must come out with the same bits; else
// our kernels keep the layer. Convolutions need no trial: each image is cut
// into the same bands of rows whatever its batch-mates and the team.
//
// Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "config/base/mutex.h"
#include "models/cpu/onednn/onednn.h"

namespace millrace::models::graph {

inline int64_t BytesOf(onednn::Type type) {
  return type == onednn::Type::kU8 ? 1 : type == onednn::Type::kBf16 ? 2 : 4;
}

// Layers by their shape without the batch, as ShapeText has it.
struct OneDnnUse {
  bool all = false;  // wherever oneDNN can
  std::set<std::string> shapes = {};

  bool any() const { return all || !shapes.empty(); }
};

// "f32 product 768 -> 3072", "u8 convolution 14x14x64 -> 14x14x64 kernel 3x3".
std::string ShapeText(const onednn::LayerSizes& sizes);

// One product in tiles of every height; they read the same packed weight.
inline constexpr std::array<int64_t, 7> kTileRows = {64, 32, 16, 8, 4, 2, 1};
using ProductTiles =
    std::array<std::unique_ptr<const onednn::Layer>, kTileRows.size()>;

class OneDnnLayers {
 public:
  OneDnnLayers(const onednn::Library& library, OneDnnUse use)
      : library_(library), use_(std::move(use)) {}

  bool Serves(const std::string& shape) const {
    return use_.all || use_.shapes.contains(shape);
  }

  // Of these sizes, whose rows do not count; null where oneDNN has none or a
  // row's bits depend on its neighbours. Stays as long as this object.
  const ProductTiles* FindProduct(onednn::LayerSizes sizes) EXCLUDES(mu_);
  // Part of a convolution, as Library::Make.
  const onednn::Layer* FindConvolution(const onednn::LayerSizes& sizes,
                                       const onednn::Layer* like) EXCLUDES(mu_);

 private:
  const onednn::Library& library_;
  const OneDnnUse use_;
  Mutex mu_;  // held while one is made and tried
  std::map<onednn::LayerSizes, std::unique_ptr<ProductTiles>> products_
      GUARDED_BY(mu_);
  std::map<std::pair<onednn::LayerSizes, const onednn::Layer*>,
           std::unique_ptr<const onednn::Layer>>
      convolutions_ GUARDED_BY(mu_);
};

}  // namespace millrace::models::graph
