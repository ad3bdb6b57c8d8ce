// Rows are copied run by run: the innermost dimensions that both sides have
// alike are one run.
#include "scheduler/ragged_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "models/tensor/dtype.h"
#include "scheduler/batch_tensors.h"

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Shape;
using models::Tensor;
using models::graph::Port;

// A batch of several lengths has one that is divisible by this, so that there
// are fewer plans.
constexpr int64_t kStep = 8;
// Lengths up to here are all of one kind.
constexpr int kLeastBits = 4;

// Copies the region that both have, whose sizes are those of the smaller one.
void CopyRegion(std::span<const int64_t> from_dims, const std::byte* from,
                std::span<const int64_t> to_dims, std::byte* to,
                int64_t element_bytes) {
  const auto bytes_of = [&](std::span<const int64_t> dims) {
    return std::accumulate(dims.begin(), dims.end(), element_bytes,
                           std::multiplies<>());
  };
  if (std::equal(from_dims.begin() + 1, from_dims.end(), to_dims.begin() + 1)) {
    const int64_t bytes = std::min(bytes_of(from_dims), bytes_of(to_dims));
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const int64_t from_step = bytes_of(from_dims.subspan(1));
  const int64_t to_step = bytes_of(to_dims.subspan(1));
  for (int64_t i = 0; i < std::min(from_dims[0], to_dims[0]); ++i) {
    CopyRegion(from_dims.subspan(1), from + i * from_step, to_dims.subspan(1),
               to + i * to_step, element_bytes);
  }
}

template <typename T>
void FillAs(double value, Tensor& tensor) {
  std::fill_n(tensor.data<T>(), tensor.num_elements(), static_cast<T>(value));
}

// Tensors begin as zeros. Half floats are padded with zeros alone, which Create
// sees to.
void Fill(double value, Tensor& tensor) {
  if (value == 0) return;
  switch (tensor.dtype()) {
    case DType::kBool:
      return FillAs<bool>(value, tensor);
    case DType::kU8:
      return FillAs<uint8_t>(value, tensor);
    case DType::kU16:
      return FillAs<uint16_t>(value, tensor);
    case DType::kU32:
      return FillAs<uint32_t>(value, tensor);
    case DType::kU64:
      return FillAs<uint64_t>(value, tensor);
    case DType::kI8:
      return FillAs<int8_t>(value, tensor);
    case DType::kI16:
      return FillAs<int16_t>(value, tensor);
    case DType::kI32:
      return FillAs<int32_t>(value, tensor);
    case DType::kI64:
      return FillAs<int64_t>(value, tensor);
    case DType::kF32:
      return FillAs<float>(value, tensor);
    case DType::kF64:
      return FillAs<double>(value, tensor);
    case DType::kF16:
    case DType::kBF16:
      return;
  }
}

// Whether the type can hold the number. Halves are filled by nothing here.
template <typename T>
bool Holds(double value) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>) {
    if (value != std::trunc(value)) return false;
  }
  // Above the largest 64-bit integers the next double is a power of two.
  return value >= static_cast<double>(Limits::lowest()) &&
         value < static_cast<double>(Limits::max()) + (sizeof(T) < 8 ? 1 : 0);
}

bool CanPad(DType dtype, double value) {
  if (value == 0) return true;
  switch (dtype) {
    case DType::kBool:
      return value == 1;
    case DType::kU8:
      return Holds<uint8_t>(value);
    case DType::kU16:
      return Holds<uint16_t>(value);
    case DType::kU32:
      return Holds<uint32_t>(value);
    case DType::kU64:
      return Holds<uint64_t>(value);
    case DType::kI8:
      return Holds<int8_t>(value);
    case DType::kI16:
      return Holds<int16_t>(value);
    case DType::kI32:
      return Holds<int32_t>(value);
    case DType::kI64:
      return Holds<int64_t>(value);
    case DType::kF32:
      return std::abs(value) <= std::numeric_limits<float>::max();
    case DType::kF64:
      return true;
    case DType::kF16:
    case DType::kBF16:
      return false;
  }
  return false;
}

Shape WithDims(const std::vector<int64_t>& dims) {
  return Shape(std::span<const int64_t>(dims));
}

Status Wrong(const std::string& message) {
  return InvalidArgument("ragged_inputs " + message).At("ragged_inputs");
}

Status CheckPadding(const config::RaggedInput& input, const Port& port) {
  if (input.is_mask && !CanPad(port.dtype, 1)) {
    return Wrong("makes a mask of '" + input.name + "', which is " +
                 std::string(models::DTypeName(port.dtype)) +
                 "; give it with each request and pad it with 0");
  }
  if (input.is_mask || CanPad(port.dtype, input.padding)) return OkStatus();
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", input.padding);
  return Wrong("pads '" + input.name + "' with " + text + ", which its type " +
               std::string(models::DTypeName(port.dtype)) +
               " cannot hold; 0 always fits");
}

// A mask has as many elements as another input has, or a constant times that:
// sizes of several inputs that are multiplied here would have no bound.
// `told`: the symbols of each input, none of masks. Returns that input's
// number.
StatusOr<size_t> FindTold(const Port& port,
                          const std::vector<std::set<int32_t>>& told) {
  std::set<int32_t> varying;
  int num_varying = 0;
  for (const auto& dim : port.dims) {
    if (dim.size >= 0) continue;
    ++num_varying;
    varying.insert(dim.symbol);
  }
  const auto one = std::find_if(
      told.begin(), told.end(), [&](const std::set<int32_t>& symbols) {
        return std::includes(symbols.begin(), symbols.end(), varying.begin(),
                             varying.end());
      });
  if (one == told.end()) {
    return Wrong("makes a mask of '" + port.name +
                 "', whose length no other input has beside the batch's; pad "
                 "it with 0");
  }
  if (num_varying <= 2) return static_cast<size_t>(one - told.begin());
  return Wrong("makes a mask of '" + port.name +
               "', which has more than one length; pad it with 0");
}

}  // namespace

StatusOr<RaggedRows> RaggedRows::Create(
    const config::RaggedSettings& declared, const std::vector<Port>& inputs,
    const std::vector<Port>& outputs,
    const std::vector<models::graph::Symbol>& symbols) {
  RaggedRows rows;
  if (declared.inputs.empty() || inputs.empty()) return rows;
  std::map<int32_t, int32_t> length_of;  // by symbol
  std::set<int32_t> told;                // symbols of inputs that are no masks
  std::vector<std::set<int32_t>> told_by(inputs.size());  // the same, by input
  rows.ports_ = inputs;
  rows.told_by_.resize(inputs.size());
  rows.symbols_ = symbols;
  rows.paddings_.resize(inputs.size());
  const int32_t batch = inputs[0].dims.empty() ? -1 : inputs[0].dims[0].symbol;
  for (const config::RaggedInput& each : declared.inputs) {
    const auto port =
        std::find_if(inputs.begin(), inputs.end(),
                     [&](const Port& p) { return p.name == each.name; });
    if (port == inputs.end()) {
      return Wrong("has '" + each.name + "', which is no input of the model");
    }
    RETURN_IF_ERROR(CheckPadding(each, *port));
    bool has_length = false;
    for (size_t axis = 1; axis < port->dims.size(); ++axis) {
      const int32_t symbol = port->dims[axis].symbol;
      if (symbol < 0 || symbol == batch) continue;
      has_length = true;
      const auto number = static_cast<int32_t>(length_of.size());
      if (length_of.try_emplace(symbol, number).second) {
        rows.most_.push_back(symbols[static_cast<size_t>(symbol)].max);
      }
    }
    if (!has_length) {
      return Wrong("has '" + each.name +
                   "', but no dimension of it behind the batch's may vary");
    }
    rows.paddings_[static_cast<size_t>(port - inputs.begin())] = each;
  }
  const auto lengths = [&](const Port& port) {
    std::vector<int32_t> numbers;
    for (const auto& dim : port.dims) {
      const auto found = length_of.find(dim.symbol);
      numbers.push_back(found == length_of.end() ? -1 : found->second);
    }
    return numbers;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    rows.inputs_.push_back(lengths(inputs[i]));
    const bool has_length =
        std::any_of(rows.inputs_[i].begin(), rows.inputs_[i].end(),
                    [](int32_t n) { return n >= 0; });
    if (has_length && rows.paddings_[i].name.empty()) {
      return Wrong("leaves out '" + inputs[i].name +
                   "', which has the length of a ragged input; name it, too");
    }
    if (rows.paddings_[i].is_mask) continue;
    for (const auto& dim : inputs[i].dims) {
      if (dim.symbol >= 0) told_by[i].insert(dim.symbol);
    }
    told.insert(told_by[i].begin(), told_by[i].end());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (rows.paddings_[i].is_mask) {
      ASSIGN_OR_RETURN(rows.told_by_[i], FindTold(inputs[i], told_by));
    }
  }
  for (const Port& port : outputs) {
    rows.output_names_.push_back(port.name);
    rows.outputs_.push_back(lengths(port));
    for (const auto& dim : port.dims) {
      if (dim.size >= 0 || (dim.symbol >= 0 && told.count(dim.symbol) > 0)) {
        continue;
      }
      return Wrong("cannot serve output '" + port.name +
                   "': a size of it follows from the inputs in a way that is "
                   "not known, so that padding cannot be cut off");
    }
  }
  return rows;
}

bool RaggedRows::IsMade(size_t input) const {
  return any() && paddings_[input].is_mask;
}

Status RaggedRows::MakeMasks(std::vector<Tensor>& inputs) const {
  if (!any()) return OkStatus();
  std::vector<bool> left_out(ports_.size());
  for (size_t i = 0; i < std::min(ports_.size(), inputs.size()); ++i) {
    left_out[i] = paddings_[i].is_mask && inputs[i].bytes() == nullptr &&
                  inputs[i].shape().rank() == 0;
  }
  RETURN_IF_ERROR(
      models::graph::CheckInputs(ports_, symbols_, inputs, left_out));
  std::map<int32_t, int64_t> size_of;  // by symbol
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (paddings_[i].is_mask) continue;
    const Shape& shape = inputs[i].shape();
    for (size_t axis = 0; axis < ports_[i].dims.size(); ++axis) {
      const int32_t symbol = ports_[i].dims[axis].symbol;
      if (symbol >= 0) size_of[symbol] = shape[static_cast<int>(axis)];
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!left_out[i]) continue;
    std::vector<int64_t> dims;
    for (const auto& dim : ports_[i].dims) {
      dims.push_back(dim.size >= 0 ? dim.size : size_of.at(dim.symbol));
    }
    // An input without elements says nothing of how large it is otherwise.
    if (inputs[told_by_[i]].num_elements() == 0 &&
        std::find(dims.begin(), dims.end(), 0) == dims.end()) {
      return InvalidArgument(
                 "input '" + ports_[i].name + "' is left out beside '" +
                 ports_[told_by_[i]].name + "', which has no elements; give it")
          .At(ports_[i].name);
    }
    inputs[i] = Tensor::Make(ports_[i].dtype, WithDims(dims));
    Fill(1, inputs[i]);
  }
  return OkStatus();
}

std::string RaggedRows::KindOf(const std::vector<Tensor>& inputs) const {
  if (!any()) return scheduler::KindOf(inputs);
  std::string kind;
  const auto append = [&kind](int64_t value) {
    kind.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape();
    append(static_cast<int64_t>(inputs[i].dtype()));
    append(shape.rank());
    for (int axis = 1; axis < shape.rank(); ++axis) {
      const bool has_length =
          inputs_[i][static_cast<size_t>(axis)] >= 0 && shape[axis] > 0;
      append(has_length
                 ? -std::max<int64_t>(
                       kLeastBits,
                       std::bit_width(static_cast<uint64_t>(shape[axis]) - 1))
                 : shape[axis]);
    }
  }
  return kind;
}

std::vector<int64_t> RaggedRows::LengthsOf(
    const std::vector<Tensor>& inputs) const {
  std::vector<int64_t> lengths(most_.size(), 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t axis = 1; axis < inputs_[i].size(); ++axis) {
      const int32_t number = inputs_[i][axis];
      if (number < 0) continue;
      lengths[static_cast<size_t>(number)] =
          inputs[i].shape()[static_cast<int>(axis)];
    }
  }
  return lengths;
}

std::vector<int64_t> RaggedRows::PaddedLengths(
    const std::vector<const std::vector<Tensor>*>& parts) const {
  if (!any()) return {};
  std::vector<int64_t> longest = LengthsOf(*parts[0]);
  bool same = true;
  for (const auto* part : parts) {
    const std::vector<int64_t> own = LengthsOf(*part);
    same = same && own == longest;
    for (size_t i = 0; i < own.size(); ++i) {
      longest[i] = std::max(longest[i], own[i]);
    }
  }
  if (same) return {};
  for (size_t i = 0; i < longest.size(); ++i) {
    const int64_t stepped = (longest[i] + kStep - 1) / kStep * kStep;
    longest[i] = std::max(longest[i], std::min(most_[i], stepped));
  }
  return longest;
}

std::vector<Tensor> RaggedRows::Join(
    const std::vector<const std::vector<Tensor>*>& parts) const {
  const std::vector<int64_t> longest = PaddedLengths(parts);
  if (longest.empty()) return JoinRows(parts);
  std::vector<Tensor> joined;
  for (size_t i = 0; i < parts[0]->size(); ++i) {
    const Tensor& first = (*parts[0])[i];
    std::vector<int64_t> dims(first.shape().begin(), first.shape().end());
    dims[0] = 0;
    for (const auto* part : parts) dims[0] += (*part)[i].shape()[0];
    for (size_t axis = 1; axis < dims.size(); ++axis) {
      const int32_t number = inputs_[i][axis];
      if (number >= 0) dims[axis] = longest[static_cast<size_t>(number)];
    }
    Tensor all = Tensor::Make(first.dtype(), WithDims(dims));
    // A mask has zeros where values end.
    if (!paddings_[i].is_mask) Fill(paddings_[i].padding, all);
    std::byte* to = all.bytes();
    const int64_t row_bytes = dims[0] == 0 ? 0 : all.num_bytes() / dims[0];
    for (const auto* part : parts) {
      const Tensor& from = (*part)[i];
      const Shape& shape = from.shape();
      std::vector<int64_t> from_dims(shape.begin(), shape.end());
      dims[0] = from_dims[0];
      if (from.num_bytes() > 0) {
        CopyRegion(from_dims, from.bytes(), dims, to,
                   models::DTypeBytes(from.dtype()));
      }
      to += from_dims[0] * row_bytes;
    }
    joined.push_back(std::move(all));
  }
  return joined;
}

StatusOr<std::vector<std::vector<Tensor>>> RaggedRows::Part(
    std::vector<Tensor> outputs,
    const std::vector<const std::vector<Tensor>*>& parts) const {
  std::vector<int32_t> rows;
  for (const auto* part : parts) {
    rows.push_back(static_cast<int32_t>((*part)[0].shape()[0]));
  }
  ASSIGN_OR_RETURN(auto divided, PartRows(std::move(outputs), rows));
  const std::vector<int64_t> longest = PaddedLengths(parts);
  if (longest.empty()) return divided;
  for (size_t p = 0; p < divided.size(); ++p) {
    const std::vector<int64_t> lengths = LengthsOf(*parts[p]);
    for (size_t i = 0; i < divided[p].size(); ++i) {
      ASSIGN_OR_RETURN(divided[p][i],
                       Cut(std::move(divided[p][i]), i, longest, lengths));
    }
  }
  return divided;
}

StatusOr<Tensor> RaggedRows::Cut(Tensor output, size_t index,
                                 const std::vector<int64_t>& longest,
                                 const std::vector<int64_t>& lengths) const {
  const std::vector<int64_t> padded(output.shape().begin(),
                                    output.shape().end());
  std::vector<int64_t> dims = padded;
  bool fits = dims.size() == outputs_[index].size();
  for (size_t axis = 1; fits && axis < dims.size(); ++axis) {
    const int32_t number = outputs_[index][axis];
    if (number < 0) continue;
    fits = padded[axis] == longest[static_cast<size_t>(number)];
    dims[axis] = lengths[static_cast<size_t>(number)];
  }
  if (!fits) {
    return FailedPrecondition(
        "output '" + output_names_[index] + "' came as " +
        models::TypeText(output.dtype(), output.shape()) +
        ", which has not the length of its inputs; the padding cannot be cut "
        "off");
  }
  if (dims == padded) return output;
  Tensor cut = Tensor::Make(output.dtype(), WithDims(dims));
  if (cut.num_bytes() > 0) {
    CopyRegion(padded, std::as_const(output).bytes(), dims, cut.bytes(),
               models::DTypeBytes(output.dtype()));
  }
  return cut;
}

}  // namespace millrace::scheduler
