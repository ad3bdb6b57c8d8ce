// Fields of the wire format (https://protobuf.dev/programming-guides/encoding)
// are walked at three levels: model, graph, tensor. A field that occurs twice
// is merged, or the last one wins; a model that has two graphs, or a tensor
// with two raw data, is left as it is.
#include "models/graph/onnx/lifted.h"

#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <memory>

namespace millrace::models::graph {
namespace {

using Bytes = LiftedModel::Bytes;

constexpr uint64_t kModelGraph = 7;
// ModelProto has 26 now; some room for newer ones.
constexpr uint64_t kLargestModelField = 64;
constexpr uint64_t kGraphInitializer = 5;
constexpr uint64_t kTensorRawData = 9;

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// One field of a message: [begin, end), its content from `content` on.
struct Field {
  uint64_t number = 0;
  int wire_type = 0;
  size_t begin = 0;
  size_t content = 0;
  size_t end = 0;
};

std::optional<uint64_t> ReadVarint(Bytes bytes, size_t* at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (*at >= bytes.size()) return std::nullopt;
    const auto byte = static_cast<uint64_t>(bytes[(*at)++]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) {
    text.push_back(static_cast<char>(value | 0x80));
  }
  text.push_back(static_cast<char>(value));
  return text;
}

std::optional<Field> ReadField(Bytes message, size_t at) {
  Field field{.begin = at};
  const auto tag = ReadVarint(message, &at);
  if (!tag.has_value()) return std::nullopt;
  field.number = *tag >> 3;
  field.wire_type = static_cast<int>(*tag & 7);
  field.content = at;
  uint64_t size = 0;
  switch (field.wire_type) {
    case kVarint:
      if (!ReadVarint(message, &at).has_value()) return std::nullopt;
      field.end = at;
      return field;
    case kFixed64:
      size = 8;
      break;
    case kFixed32:
      size = 4;
      break;
    case kLengthDelimited: {
      const auto length = ReadVarint(message, &at);
      if (!length.has_value()) return std::nullopt;
      field.content = at;
      size = *length;
      break;
    }
    default:
      return std::nullopt;  // groups, which ONNX has none of
  }
  if (size > message.size() - at) return std::nullopt;
  field.end = at + static_cast<size_t>(size);
  return field;
}

// All fields of a message; nothing when they are not one.
std::optional<std::vector<Field>> FieldsOf(Bytes message) {
  std::vector<Field> fields;
  for (size_t at = 0; at < message.size();) {
    const auto field = ReadField(message, at);
    if (!field.has_value()) return std::nullopt;
    fields.push_back(*field);
    at = field->end;
  }
  return fields;
}

Bytes ContentOf(Bytes message, const Field& field) {
  return message.subspan(field.content, field.end - field.content);
}

// The one length-delimited field of this number, or null.
const Field* OnlyField(const std::vector<Field>& fields, uint64_t number) {
  const Field* found = nullptr;
  for (const Field& field : fields) {
    if (field.number != number) continue;
    if (found != nullptr || field.wire_type != kLengthDelimited) return nullptr;
    found = &field;
  }
  return found;
}

}  // namespace

class Lifter {
 public:
  Lifter(Bytes model, size_t least_bytes)
      : model_(model), least_bytes_(least_bytes) {}

  LiftedModel Run() {
    if (!Lift()) {
      made_ = LiftedModel();
      made_.pieces_ = {model_};
    }
    return std::move(made_);
  }

 private:
  // A tensor of the graph, and the field of it that goes.
  struct Cut {
    Field tensor;
    Field raw;  // offsets in the tensor
  };

  bool Lift() {
    const auto fields = FieldsOf(model_);
    if (!fields.has_value()) return false;
    const Field* graph = OnlyField(*fields, kModelGraph);
    if (graph == nullptr) return false;
    const Bytes inside = ContentOf(model_, *graph);
    std::vector<Cut> cuts;
    if (!FindCuts(inside, &cuts) || cuts.empty()) return false;
    made_.pieces_.push_back(model_.first(graph->begin));
    size_t length = inside.size();
    for (const Cut& cut : cuts) {
      length -= cut.tensor.end - cut.tensor.begin;
      length += HeaderOf(cut).size() + LengthOf(cut);
    }
    Add(Varint(kModelGraph << 3 | kLengthDelimited) + Varint(length));
    size_t at = 0;
    for (const Cut& cut : cuts) {
      const Bytes tensor = ContentOf(inside, cut.tensor);
      made_.pieces_.push_back(inside.subspan(at, cut.tensor.begin - at));
      Add(HeaderOf(cut));
      made_.pieces_.push_back(tensor.first(cut.raw.begin));
      made_.pieces_.push_back(tensor.subspan(cut.raw.end));
      at = cut.tensor.end;
    }
    made_.pieces_.push_back(inside.subspan(at));
    made_.pieces_.push_back(model_.subspan(graph->end));
    return true;
  }

  bool FindCuts(Bytes graph, std::vector<Cut>* cuts) {
    const auto fields = FieldsOf(graph);
    if (!fields.has_value()) return false;
    for (const Field& field : *fields) {
      if (field.number != kGraphInitializer) continue;
      if (field.wire_type != kLengthDelimited) return false;
      auto& raw = made_.raw_.emplace_back();
      const Bytes tensor = ContentOf(graph, field);
      if (tensor.size() < least_bytes_) continue;
      const auto parts = FieldsOf(tensor);
      if (!parts.has_value()) return false;
      const Field* data = OnlyField(*parts, kTensorRawData);
      if (data == nullptr || data->end - data->content < least_bytes_) continue;
      raw = ContentOf(tensor, *data);
      cuts->push_back({field, *data});
    }
    return true;
  }

  // Bytes that are left of the tensor.
  static size_t LengthOf(const Cut& cut) {
    return cut.tensor.end - cut.tensor.content - (cut.raw.end - cut.raw.begin);
  }
  static std::string HeaderOf(const Cut& cut) {
    return Varint(kGraphInitializer << 3 | kLengthDelimited) +
           Varint(LengthOf(cut));
  }
  void Add(std::string header) {
    made_.headers_.push_back(std::move(header));
    made_.pieces_.push_back(std::as_bytes(std::span(made_.headers_.back())));
  }

  const Bytes model_;
  const size_t least_bytes_;
  LiftedModel made_;
};

LiftedModel LiftInitializers(std::span<const std::byte> bytes,
                             int64_t least_bytes) {
  return Lifter(bytes, static_cast<size_t>(least_bytes)).Run();
}

bool HasOnnxGraph(std::span<const std::byte> bytes) {
  bool has_graph = false;
  for (size_t at = 0; at < bytes.size();) {
    const auto field = ReadField(bytes, at);
    if (!field.has_value() || field->number == 0 ||
        field->number > kLargestModelField) {
      return false;
    }
    has_graph |= field->number == kModelGraph &&
                 field->wire_type == kLengthDelimited &&
                 field->end > field->content;
    at = field->end;
  }
  return has_graph;
}

bool Parse(const LiftedModel& lifted, onnx::ModelProto* model) {
  using google::protobuf::io::ArrayInputStream;
  std::vector<std::unique_ptr<ArrayInputStream>> streams;
  std::vector<google::protobuf::io::ZeroCopyInputStream*> all;
  for (const Bytes piece : lifted.pieces()) {
    streams.push_back(std::make_unique<ArrayInputStream>(
        piece.data(), static_cast<int>(piece.size())));
    all.push_back(streams.back().get());
  }
  google::protobuf::io::ConcatenatingInputStream whole(
      all.data(), static_cast<int>(all.size()));
  return model->ParseFromZeroCopyStream(&whole);
}

}  // namespace millrace::models::graph
