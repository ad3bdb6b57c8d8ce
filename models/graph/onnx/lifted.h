// Detached initializers: a serialized model without the raw data of its large
// weights, so that protobuf's parser, which copies all it reads, does not copy
// these.
//
//   const LiftedModel lifted = LiftInitializers(bytes, 64 << 10);
//   onnx::ModelProto model;
//   if (!Parse(lifted, &model)) …
//   lifted.RawOf(3)    // what tensor 3 of graph.initializer has as raw_data
//
// A tensor whose raw data were lifted has none in the proto. Nothing is judged
// here: bytes that are no model are handed to the parser as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace onnx {
class ModelProto;
}

namespace millrace::models::graph {

// Borrows from the bytes it was made of.
class LiftedModel {
 public:
  using Bytes = std::span<const std::byte>;

  std::optional<Bytes> RawOf(int initializer) const {
    const auto at = static_cast<size_t>(initializer);
    return at < raw_.size() ? raw_[at] : std::nullopt;
  }
  // One after another these are what is to be parsed.
  const std::vector<Bytes>& pieces() const { return pieces_; }

 private:
  friend class Lifter;
  std::vector<Bytes> pieces_;
  std::deque<std::string> headers_;  // of fields that are shorter now
  std::vector<std::optional<Bytes>> raw_;
};

// Of the main graph's initializers, raw data of `least_bytes` or more.
LiftedModel LiftInitializers(std::span<const std::byte> bytes,
                             int64_t least_bytes);

// Whether the bytes are a message as an ONNX model is: whole fields with small
// numbers from beginning to end, a graph among them. Reads the headers of the
// outer fields only.
bool HasOnnxGraph(std::span<const std::byte> bytes);

bool Parse(const LiftedModel& lifted, onnx::ModelProto* model);

}  // namespace millrace::models::graph
