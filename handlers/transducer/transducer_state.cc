#include "handlers/transducer/transducer_state.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace millrace::handlers {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Append(&value, sizeof value);
  }
  template <typename T>
  void PutAll(const std::vector<T>& values) {
    Put(static_cast<int64_t>(values.size()));
    Append(values.data(), values.size() * sizeof(T));
  }
  void Append(const void* from, size_t size) {
    const auto* bytes = static_cast<const char*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  Tensor Take() const {
    return Tensor::From<char>(DType::kU8, {static_cast<int64_t>(bytes_.size())},
                              bytes_);
  }

 private:
  std::vector<char> bytes_;
};

// Where the bytes end too early, everything is zero and ok() false.
class Reader {
 public:
  explicit Reader(const Tensor& tensor)
      : at_(tensor.bytes()), left_(static_cast<size_t>(tensor.num_bytes())) {}

  template <typename T>
  T Get() {
    T value = {};
    Copy(&value, sizeof value);
    return value;
  }
  // A number of things of at least `size` bytes each.
  size_t GetCount(size_t size) {
    const auto count = Get<int64_t>();
    if (count < 0 || static_cast<uint64_t>(count) > left_ / size) ok_ = false;
    return ok_ ? static_cast<size_t>(count) : 0;
  }
  template <typename T>
  std::vector<T> GetAll() {
    std::vector<T> values(GetCount(sizeof(T)));
    Copy(values.data(), values.size() * sizeof(T));
    return values;
  }
  void Copy(void* to, size_t size) {
    if (size > left_) ok_ = false;
    if (!ok_ || size == 0) return;
    std::memcpy(to, at_, size);
    at_ += size;
    left_ -= size;
  }
  bool ok() const { return ok_; }

 private:
  const std::byte* at_;
  size_t left_;
  bool ok_ = true;
};

void PutTensor(const Tensor& tensor, Writer& writer) {
  writer.Put(tensor.dtype());
  writer.PutAll(
      std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end()));
  writer.Append(tensor.bytes(), static_cast<size_t>(tensor.num_bytes()));
}

StatusOr<Tensor> GetTensor(Reader& reader) {
  const auto dtype = reader.Get<DType>();
  ASSIGN_OR_RETURN(const Shape shape, Shape::Checked(reader.GetAll<int64_t>()));
  if (!reader.ok()) return Tensor();
  Tensor tensor = Tensor::Make(dtype, shape);
  reader.Copy(tensor.bytes(), static_cast<size_t>(tensor.num_bytes()));
  return tensor;
}

}  // namespace

Tensor WriteState(const TransducerState& state) {
  Writer writer;
  writer.Put(state.num_samples);
  writer.Put(state.num_frames);
  writer.PutAll(state.samples);
  writer.Put(static_cast<int64_t>(state.encoder.size()));
  for (const Tensor& each : state.encoder) PutTensor(each, writer);
  writer.Put(static_cast<int64_t>(state.hypotheses.size()));
  for (const Hypothesis& each : state.hypotheses) {
    writer.PutAll(each.tokens);
    writer.Put(each.score);
    writer.PutAll(each.prediction->encoding);
    writer.Put(static_cast<int64_t>(each.prediction->states.size()));
    for (const auto& row : each.prediction->states) writer.PutAll(row);
  }
  return writer.Take();
}

StatusOr<TransducerState> ReadState(const Tensor& tensor) {
  TransducerState state;
  if (tensor.num_bytes() <= 1) return state;
  Reader reader(tensor);
  state.num_samples = reader.Get<int64_t>();
  state.num_frames = reader.Get<int64_t>();
  state.samples = reader.GetAll<float>();
  const size_t num_tensors = reader.GetCount(sizeof(DType));
  for (size_t i = 0; i < num_tensors && reader.ok(); ++i) {
    ASSIGN_OR_RETURN(Tensor each, GetTensor(reader));
    state.encoder.push_back(std::move(each));
  }
  const size_t num_hypotheses = reader.GetCount(sizeof(int64_t));
  for (size_t i = 0; i < num_hypotheses && reader.ok(); ++i) {
    Hypothesis& each = state.hypotheses.emplace_back();
    each.tokens = reader.GetAll<Hypothesis::Token>();
    each.score = reader.Get<double>();
    const auto prediction = std::make_shared<Prediction>();
    prediction->encoding = reader.GetAll<float>();
    prediction->states.resize(reader.GetCount(sizeof(int64_t)));
    for (auto& row : prediction->states) row = reader.GetAll<float>();
    each.prediction = prediction;
  }
  if (!reader.ok()) return Internal("the state of a session is cut off");
  return state;
}

}  // namespace millrace::handlers
