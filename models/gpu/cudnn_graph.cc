#include "models/gpu/cudnn_graph.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "config/base/status.h"

namespace millrace::models {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

using cuda::Function;
using cuda::GraphFormat;
using cudnn::Attribute;
using cudnn::DataType;
using cudnn::Kind;
using cudnn::PointwiseMode;
using cudnn::Type;
using Sizes = std::vector<int64_t>;

DataType TypeOf(GraphFormat format) {
  switch (format) {
    case GraphFormat::kF16:
      return DataType::kF16;
    case GraphFormat::kBf16:
      return DataType::kBf16;
    default:
      return DataType::kF32;
  }
}

// Channels last: the second axis is the fastest, the first the slowest.
Sizes StridesOf(const Sizes& sizes) {
  Sizes strides(sizes.size());
  strides[1] = 1;
  int64_t stride = sizes[1];
  for (size_t axis = sizes.size(); axis-- > 2;) {
    strides[axis] = stride;
    stride *= sizes[axis];
  }
  strides[0] = stride;
  return strides;
}

class Describer {
 public:
  Describer(const std::shared_ptr<const CudnnLibrary>& library,
            const ConvShape& shape, int64_t images)
      : library_(library), shape_(shape), images_(images) {
    // Two dimensions where depth is none: cuDNN has more engines for them.
    first_ =
        shape.in[0] == 1 && shape.out[0] == 1 && shape.kernel[0] == 1 ? 1 : 0;
  }

  CudnnGraph Describe(cudnn::Handle handle) {
    CountOperations();
    // Indices, since parts move as their number grows.
    size_t at = Convolve();
    if (shape_.has_bias) {
      Sizes sizes(Axes(), 1);
      sizes[1] = shape_.outputs;
      at = Combine(PointwiseMode::kAdd, at,
                   Tensor(ConvTensor::kBias, GraphFormat::kF32, sizes));
    }
    if (shape_.residual && shape_.residual_first) at = AddResidual(at);
    if (shape_.f != Function::kNone) at = Apply(at);
    if (shape_.gate) {
      at = Combine(PointwiseMode::kMul, at,
                   Tensor(ConvTensor::kGate, *shape_.gate, ResultSizes()));
    }
    if (shape_.residual && !shape_.residual_first) at = AddResidual(at);
    CHECK(made_ == operations_, "each operation was counted");
    CudnnDescriptor graph(library_, Kind::kOperationGraph);
    if (handle != nullptr) graph.SetHandle(Attribute::kGraphHandle, handle);
    std::vector<cudnn::Descriptor> nodes;
    for (const size_t node : nodes_) nodes.push_back(parts_[node].get());
    for (const CudnnDescriptor& part : parts_) graph.TakeError(part);
    graph.SetDescriptors(Attribute::kGraphOperations, nodes);
    graph.Finalize();
    return {std::move(parts_), std::move(graph)};
  }

 private:
  size_t Axes() const { return 2 + 3 - first_; }
  Sizes ResultSizes() const {
    return SizesOf(images_, shape_.outputs, shape_.out);
  }
  Sizes SizesOf(int64_t outer, int64_t inner,
                const std::array<int64_t, 3>& space) const {
    Sizes sizes = {outer, inner};
    sizes.insert(sizes.end(), space.begin() + static_cast<int64_t>(first_),
                 space.end());
    return sizes;
  }

  void CountOperations() {
    operations_ = 1 + (shape_.has_bias ? 1 : 0) + (shape_.residual ? 1 : 0) +
                  (shape_.f != Function::kNone ? 1 : 0) + (shape_.gate ? 1 : 0);
  }

  size_t Keep(CudnnDescriptor part) {
    part.Finalize();
    parts_.push_back(std::move(part));
    return parts_.size() - 1;
  }

  size_t MakeTensor(int64_t id, DataType type, const Sizes& sizes,
                    bool is_virtual) {
    CudnnDescriptor tensor(library_, Kind::kTensor);
    tensor.SetInt(Attribute::kTensorId, id);
    tensor.SetEnum(Attribute::kTensorType, Type::kDataType, type);
    tensor.SetInt(Attribute::kTensorAlignment, kConvAlignment);
    tensor.SetInts(Attribute::kTensorDimensions, sizes);
    tensor.SetInts(Attribute::kTensorStrides, StridesOf(sizes));
    if (is_virtual) tensor.SetBool(Attribute::kTensorIsVirtual, true);
    return Keep(std::move(tensor));
  }
  size_t Tensor(ConvTensor id, GraphFormat format, const Sizes& sizes) {
    return MakeTensor(static_cast<int64_t>(id), TypeOf(format), sizes, false);
  }
  // Of the next operation: y, or a virtual one.
  size_t Result() {
    constexpr int64_t kFirstVirtual = 16;
    ++made_;
    return made_ == operations_
               ? Tensor(ConvTensor::kY, shape_.y, ResultSizes())
               : MakeTensor(kFirstVirtual + made_, DataType::kF32,
                            ResultSizes(), true);
  }

  size_t Convolve() {
    const size_t x = Tensor(ConvTensor::kX, shape_.factors(),
                            SizesOf(images_, shape_.channels, shape_.in));
    const size_t w =
        Tensor(ConvTensor::kW, shape_.factors(),
               SizesOf(shape_.outputs, shape_.channels / shape_.groups,
                       shape_.kernel));
    const size_t y = Result();
    CudnnDescriptor how(library_, Kind::kConvolution);
    const auto set = [&](Attribute attribute,
                         const std::array<int64_t, 3>& values) {
      how.SetInts(attribute, std::span(values).subspan(first_));
    };
    how.SetEnum(Attribute::kConvolutionComputeType, Type::kDataType,
                DataType::kF32);
    how.SetEnum(Attribute::kConvolutionMode, Type::kConvolutionMode,
                cudnn::ConvolutionMode::kCrossCorrelation);
    how.SetInt(Attribute::kConvolutionSpatialDims,
               3 - static_cast<int64_t>(first_));
    set(Attribute::kConvolutionDilations, shape_.dilation);
    set(Attribute::kConvolutionStrides, shape_.stride);
    set(Attribute::kConvolutionPrePaddings, shape_.pad);
    set(Attribute::kConvolutionPostPaddings, shape_.pad_end);
    const size_t kept = Keep(std::move(how));
    CudnnDescriptor node(library_, Kind::kConvolutionForward);
    node.SetFloat(Attribute::kForwardAlpha, 1);
    node.SetFloat(Attribute::kForwardBeta, 0);
    node.SetDescriptor(Attribute::kForwardConvolution, parts_[kept]);
    node.SetDescriptor(Attribute::kForwardX, parts_[x]);
    node.SetDescriptor(Attribute::kForwardW, parts_[w]);
    node.SetDescriptor(Attribute::kForwardY, parts_[y]);
    nodes_.push_back(Keep(std::move(node)));
    return y;
  }

  CudnnDescriptor How(PointwiseMode mode) const {
    CudnnDescriptor how(library_, Kind::kPointwise);
    how.SetEnum(Attribute::kPointwiseMode, Type::kPointwiseMode, mode);
    how.SetEnum(Attribute::kPointwiseMathType, Type::kDataType, DataType::kF32);
    return how;
  }
  // The tensor that it writes.
  size_t Node(CudnnDescriptor how, size_t x, std::optional<size_t> with) {
    const size_t kept = Keep(std::move(how));
    const size_t y = Result();
    CudnnDescriptor node(library_, Kind::kPointwiseOperation);
    node.SetDescriptor(Attribute::kOperationPointwise, parts_[kept]);
    node.SetDescriptor(Attribute::kOperationX, parts_[x]);
    if (with) node.SetDescriptor(Attribute::kOperationB, parts_[*with]);
    node.SetDescriptor(Attribute::kOperationY, parts_[y]);
    nodes_.push_back(Keep(std::move(node)));
    return y;
  }
  size_t Combine(PointwiseMode mode, size_t x, size_t with) {
    return Node(How(mode), x, with);
  }
  size_t AddResidual(size_t x) {
    return Combine(
        PointwiseMode::kAdd, x,
        Tensor(ConvTensor::kResidual, *shape_.residual, ResultSizes()));
  }
  size_t Apply(size_t x) {
    const auto mode = PointwiseModeOf(shape_.f);
    CHECK(mode.has_value(), "cuDNN has the function");
    CudnnDescriptor how = How(*mode);
    switch (shape_.f) {
      case Function::kClip:
        // 0 times infinity might be added where there is no bound.
        how.SetFloat(Attribute::kReluLowerClip, std::max(shape_.a, -kLargest));
        how.SetFloat(Attribute::kReluUpperClip, std::min(shape_.b, kLargest));
        break;
      case Function::kLeakyRelu:
        how.SetFloat(Attribute::kReluLowerClipSlope, shape_.a);
        break;
      case Function::kElu:
        how.SetFloat(Attribute::kEluAlpha, shape_.a);
        break;
      case Function::kSoftplus:
        how.SetFloat(Attribute::kSoftplusBeta, shape_.a);
        break;
      case Function::kSilu:
        how.SetFloat(Attribute::kSwishBeta, 1);
        break;
      default:
        break;
    }
    return Node(std::move(how), x, std::nullopt);
  }

  const std::shared_ptr<const CudnnLibrary>& library_;
  const ConvShape& shape_;
  const int64_t images_;
  size_t first_ = 0;  // axis of space
  int operations_ = 0;
  int made_ = 0;
  std::vector<CudnnDescriptor> parts_;
  std::vector<size_t> nodes_;  // of parts
};

}  // namespace

GraphFormat ConvShape::factors() const {
  switch (precision) {
    case cuda::GraphPrecision::kF16:
      return GraphFormat::kF16;
    case cuda::GraphPrecision::kBf16:
      return GraphFormat::kBf16;
    default:
      return GraphFormat::kF32;
  }
}

int64_t ConvShape::y_bytes(GraphFormat format) const {
  return out_pixels() * outputs * cuda::BytesOf(format);
}

std::optional<PointwiseMode> PointwiseModeOf(Function f) {
  switch (f) {
    case Function::kRelu:
    case Function::kClip:
    case Function::kLeakyRelu:
      return PointwiseMode::kRelu;
    case Function::kSigmoid:
      return PointwiseMode::kSigmoid;
    case Function::kTanh:
      return PointwiseMode::kTanh;
    case Function::kElu:
      return PointwiseMode::kElu;
    case Function::kGeluErf:
      return PointwiseMode::kGelu;
    case Function::kGeluTanh:
      return PointwiseMode::kGeluTanh;
    case Function::kSilu:
      return PointwiseMode::kSwish;
    case Function::kSoftplus:
      return PointwiseMode::kSoftplus;
    default:
      return std::nullopt;
  }
}

CudnnGraph DescribeConvolution(
    const std::shared_ptr<const CudnnLibrary>& library, cudnn::Handle handle,
    const ConvShape& shape, int64_t images) {
  return Describer(library, shape, images).Describe(handle);
}

}  // namespace millrace::models
