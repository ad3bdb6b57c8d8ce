#include "models/graph/pt2/lowering.h"

#include <algorithm>
#include <utility>

#include "models/graph/pt2/json_fields.h"
#include "models/tensor/shape.h"

namespace millrace::models::graph::pt2 {
namespace {

// torch.promote_types.
DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (IsFloat(a) || IsFloat(b)) {
    if (!IsFloat(a)) return b;
    if (!IsFloat(b)) return a;
    if (a == DType::kF64 || b == DType::kF64) return DType::kF64;
    return DType::kF32;  // also of the two halves
  }
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (IsSigned(a) == IsSigned(b)) return DTypeBytes(a) > DTypeBytes(b) ? a : b;
  const DType with_sign = IsSigned(a) ? a : b;
  const DType without = IsSigned(a) ? b : a;
  if (DTypeBytes(with_sign) > DTypeBytes(without)) return with_sign;
  switch (DTypeBytes(without)) {
    case 1:
      return DType::kI16;
    case 2:
      return DType::kI32;
    default:
      return DType::kI64;
  }
}

std::optional<DType> Combine(std::optional<DType> higher,
                             std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || IsFloat(*higher)) return higher;
  if (*higher == DType::kBool || IsFloat(*lower)) {
    return Promote(*higher, *lower);
  }
  return higher;
}

}  // namespace

Promotion& Promotion::Add(const Operand& x) {
  if (!x) return *this;
  std::optional<DType>& kind = x.rank() > 0 ? sized_ : scalar_;
  kind = kind ? Promote(*kind, x.dtype()) : x.dtype();
  return *this;
}

Promotion& Promotion::Add(const Num& number) {
  const DType type = number.dtype == DType::kF64 ? DType::kF32 : number.dtype;
  number_ = number_ ? Promote(*number_, type) : type;
  return *this;
}

DType Promotion::Type() const {
  return Combine(sized_, Combine(scalar_, number_)).value_or(DType::kF32);
}

Lowering::Lowering(const NodeSpec& spec, Names& names, Emitter& emitter)
    : spec_(spec), names_(names), emit_(emitter) {
  for (const Argument& output : spec.outputs) {
    names_out_.insert(names_out_.end(), output.tensors.begin(),
                      output.tensors.end());
  }
  outputs_.assign(names_out_.size(), kNoValue);
}

const Argument* Lowering::Given(std::string_view name) const {
  const Argument* argument = spec_.Find(name);
  if (argument == nullptr || argument->kind == Argument::Kind::kNone) {
    return nullptr;
  }
  return argument;
}

bool Lowering::Has(std::string_view name) const {
  return Given(name) != nullptr;
}

Operand Lowering::ArgOrNone(std::string_view name) {
  const Argument* argument = Given(name);
  if (argument == nullptr) return {};
  if (argument->kind != Argument::Kind::kTensor) {
    emit_.Fail(InvalidArgument("the argument '" + std::string(name) +
                               "' is no tensor"));
    return {};
  }
  return names_.Tensor(argument->tensors[0]);
}

Operand Lowering::Arg(std::string_view name) {
  static const TensorMeta kNothing;
  const Operand operand = ArgOrNone(name);
  if (operand) return operand;
  emit_.Fail(
      InvalidArgument("the tensor '" + std::string(name) + "' is missing"));
  return {.id = kNoValue, .meta = &kNothing};
}

std::vector<Operand> Lowering::Args(std::string_view name) {
  std::vector<Operand> operands;
  const Argument* argument = Given(name);
  if (argument == nullptr) return operands;
  if (argument->kind != Argument::Kind::kTensors &&
      argument->kind != Argument::Kind::kTensor &&
      !(argument->kind == Argument::Kind::kScalars &&
        argument->scalars.empty())) {
    emit_.Fail(InvalidArgument("the argument '" + std::string(name) +
                               "' is no list of tensors"));
  }
  for (const std::string& tensor : argument->tensors) {
    operands.push_back(tensor.empty() ? Operand() : names_.Tensor(tensor));
  }
  return operands;
}

Num Lowering::Resolve(const Scalar& scalar) {
  switch (scalar.kind) {
    case Scalar::Kind::kInt:
      return Num::Of(scalar.integer);
    case Scalar::Kind::kFloat:
      return Num::Real(scalar.real);
    case Scalar::Kind::kBool:
      return Num::Truth(scalar.integer != 0);
    case Scalar::Kind::kName:
      break;
  }
  return names_.Number(scalar.name);
}

Num Lowering::Number(std::string_view name) {
  if (!Has(name)) {
    emit_.Fail(
        InvalidArgument("the number '" + std::string(name) + "' is missing"));
  }
  return Number(name, Num::Of(0));
}

Num Lowering::Number(std::string_view name, Num otherwise) {
  const Argument* argument = Given(name);
  if (argument == nullptr) return otherwise;
  if (argument->kind != Argument::Kind::kScalar) {
    emit_.Fail(InvalidArgument("the argument '" + std::string(name) +
                               "' is no number"));
    return otherwise;
  }
  return Resolve(argument->scalars[0]);
}

int64_t Lowering::Int(std::string_view name, int64_t otherwise) {
  const Num number = Number(name, Num::Of(otherwise));
  if (!number.known() || number.dtype == DType::kF64) {
    Fail("the argument '" + std::string(name) +
         "' must be an integer known beforehand");
    return otherwise;
  }
  return number.integer;
}

double Lowering::Real(std::string_view name, double otherwise) {
  const Num number = Number(name, Num::Real(otherwise));
  if (!number.known()) {
    Fail("the argument '" + std::string(name) + "' must be known beforehand");
    return otherwise;
  }
  return number.AsReal();
}

bool Lowering::Flag(std::string_view name, bool otherwise) {
  return Int(name, otherwise ? 1 : 0) != 0;
}

std::string_view Lowering::Text(std::string_view name,
                                std::string_view otherwise) {
  const Argument* argument = Given(name);
  if (argument == nullptr || argument->kind != Argument::Kind::kText) {
    return otherwise;
  }
  return argument->text;
}

std::optional<DType> Lowering::Type(std::string_view name) {
  const Argument* argument = Given(name);
  if (argument == nullptr || argument->kind != Argument::Kind::kDType) {
    return std::nullopt;
  }
  return argument->dtype;
}

std::vector<Num> Lowering::Numbers(std::string_view name) {
  std::vector<Num> numbers;
  const Argument* argument = Given(name);
  if (argument == nullptr) return numbers;
  for (const Scalar& scalar : argument->scalars) {
    numbers.push_back(Resolve(scalar));
  }
  return numbers;
}

std::vector<int64_t> Lowering::Ints(std::string_view name) {
  std::vector<int64_t> values;
  for (const Num& number : Numbers(name)) {
    if (!number.known() || number.dtype == DType::kF64) {
      Fail("the list '" + std::string(name) +
           "' must be integers known beforehand");
    }
    values.push_back(number.integer);
  }
  return values;
}

std::vector<int64_t> Lowering::Ints(std::string_view name, size_t count,
                                    int64_t otherwise) {
  std::vector<int64_t> values = Ints(name);
  if (values.empty()) values.push_back(otherwise);
  if (values.size() == 1) values.resize(count, values[0]);
  if (values.size() != count) {
    emit_.Fail(InvalidArgument("the list '" + std::string(name) + "' has " +
                               std::to_string(values.size()) +
                               " numbers, not " + std::to_string(count)));
    values.resize(count, otherwise);
  }
  return values;
}

int64_t Lowering::Axis(std::string_view name, int64_t otherwise, int rank) {
  // A tensor without dimensions is treated as if it had one.
  const auto axis = NormalAxis(Int(name, otherwise), std::max(rank, 1));
  if (!axis.ok()) {
    emit_.Fail(axis.status());
    return 0;
  }
  return *axis;
}

std::vector<int64_t> Lowering::Axes(std::string_view name, int rank) {
  std::vector<int64_t> axes;
  for (const int64_t given : Ints(name)) {
    const auto axis = NormalAxis(given, std::max(rank, 1));
    if (!axis.ok()) {
      emit_.Fail(axis.status());
    } else if (std::count(axes.begin(), axes.end(), *axis) == 0) {
      axes.push_back(*axis);
    }
  }
  if (axes.empty()) {
    for (int64_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  }
  return axes;
}

Num Lowering::Size(const Operand& x, int64_t axis) {
  if (axis < 0 || axis >= x.rank()) {
    emit_.Fail(InvalidArgument("axis " + std::to_string(axis) +
                               " is outside of a tensor of rank " +
                               std::to_string(x.rank())));
    return Num::Of(1);
  }
  const Dim& dim = x.meta->sizes[static_cast<size_t>(axis)];
  return dim.fixed ? Num::Of(dim.hint) : emit_.SizeOf(x.id, axis);
}

std::vector<Num> Lowering::Sizes(const Operand& x) {
  std::vector<Num> sizes;
  for (int i = 0; i < x.rank(); ++i) sizes.push_back(Size(x, i));
  return sizes;
}

const TensorMeta* Lowering::OutMeta(size_t i) const {
  return i < names_out_.size() ? names_.Meta(names_out_[i]) : nullptr;
}

DType Lowering::OutType(size_t i) const {
  const TensorMeta* meta = OutMeta(i);
  return meta != nullptr ? meta->dtype : DType::kF32;
}

void Lowering::Return(size_t i, ValueId value) {
  if (i < outputs_.size()) outputs_[i] = value;
}

void Lowering::ReturnAs(DType dtype, ValueId value) {
  Return(emit_.Cast(value, dtype, OutType(0)));
}

}  // namespace millrace::models::graph::pt2
