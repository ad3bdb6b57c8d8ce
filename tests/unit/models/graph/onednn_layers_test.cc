// Layers of a library that is not oneDNN's: what is done where one fails.
#include "models/graph/plan/onednn_layers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace millrace::models::graph {
namespace {

using onednn::LayerArgs;
using onednn::LayerSizes;

// y = 0 of a layer that asks for this much memory.
struct Wishes {
  int64_t packed_bytes = 64;
  int64_t scratch_bytes = 64;
};

class FakeLayer final : public onednn::Layer {
 public:
  FakeLayer(const LayerSizes& sizes, Wishes wishes)
      : sizes_(sizes), wishes_(wishes) {}
  int64_t packed_bytes() const override { return wishes_.packed_bytes; }
  int64_t scratch_bytes() const override { return wishes_.scratch_bytes; }
  bool Pack(const void*, void* packed) const override {
    std::memset(packed, 0, 64);
    return true;
  }
  bool Run(const LayerArgs& args) const override {
    std::memset(args.scratch, 0, 64);
    std::memset(args.y, 0, static_cast<size_t>(sizes_.rows * sizes_.n * 4));
    return true;
  }
  std::string Implementation() const override { return "fake"; }

 private:
  const LayerSizes sizes_;
  const Wishes wishes_;
};

class FakeLibrary final : public onednn::Library {
 public:
  explicit FakeLibrary(Wishes wishes) : wishes_(wishes) {}
  std::unique_ptr<onednn::Layer> Make(const LayerSizes& sizes,
                                      const onednn::Layer*) const override {
    return std::make_unique<FakeLayer>(sizes, wishes_);
  }

 private:
  const Wishes wishes_;
};

bool Finds(Wishes wishes) {
  const FakeLibrary library(wishes);
  OneDnnLayers layers(library, {.all = true});
  return layers.FindProduct({.k = 16, .n = 16}) != nullptr;
}

TEST(OneDnnLayers, ThoseThatNeedMoreMemoryThanThereIsAreNotServed) {
  constexpr int64_t kTooMuch = int64_t{1} << 60;
  EXPECT_TRUE(Finds({}));
  EXPECT_FALSE(Finds({.packed_bytes = kTooMuch}));
  EXPECT_FALSE(Finds({.scratch_bytes = kTooMuch}));
}

}  // namespace
}  // namespace millrace::models::graph
