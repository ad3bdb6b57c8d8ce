// cuDNN, NVIDIA's library of layers: the functions of its graph API (backend
// descriptors) that convolutions of graphs use. It is opened when a model asks
// for it, so that a server without it lacks nothing. Declared here after
// cuDNN's public interface, so that no header of it is needed to build; a test
// holds what stands here against that header where it is installed.
//
//   ASSIGN_OR_RETURN(const auto library, CudnnLibrary::Open());
//   const int error = library->create(&handle);
//   if (error != cudnn::kSuccess) return Internal(library->TextOf(error));
//
// Immutable once opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "config/base/status.h"

namespace millrace::models {

namespace cudnn {

using Handle = void*;
using Descriptor = void*;

inline constexpr int kSuccess = 0;
// cudnnBackendDescriptorType_t
enum class Kind : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kConvolutionForward = 10,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};
// cudnnBackendAttributeName_t
enum class Attribute : int {
  kPointwiseMode = 0,
  kPointwiseMathType = 1,
  kReluLowerClip = 3,
  kReluUpperClip = 4,
  kReluLowerClipSlope = 5,
  kEluAlpha = 6,
  kSoftplusBeta = 7,
  kSwishBeta = 8,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kConfigKnobChoices = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kKnobType = 600,
  kKnobValue = 601,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kOperationPointwise = 750,
  kOperationX = 751,
  kOperationB = 752,
  kOperationY = 753,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kEngineBehaviorNotes = 1305,
};
// cudnnBackendAttributeType_t
enum class Type : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicsMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kBehaviorNote = 19,
};
// cudnnDataType_t
enum class DataType : int { kF32 = 0, kF16 = 2, kBf16 = 9 };
// cudnnConvolutionMode_t: what networks call a convolution does not turn the
// kernel around.
enum class ConvolutionMode : int { kCrossCorrelation = 1 };
// cudnnBackendHeurMode_t
enum class HeuristicsMode : int { kA = 3 };
// cudnnPointwiseMode_t
enum class PointwiseMode : int {
  kAdd = 0,
  kMul = 1,
  kRelu = 100,
  kTanh = 101,
  kSigmoid = 102,
  kElu = 103,
  kGelu = 104,
  kSoftplus = 105,
  kSwish = 106,
  kGeluTanh = 107,
};
// cudnnBackendNumericalNote_t
enum class NumericalNote : int {
  kTensorCore = 0,
  kDownConvertInputs = 1,
  kReducedPrecisionReduction = 2,
  kFft = 3,
  kNondeterministic = 4,
  kWinograd = 5,
  kWinograd4 = 6,
  kWinograd6 = 7,
  kWinograd13 = 8,
};
// cudnnBackendBehaviorNote_t
enum class BehaviorNote : int {
  kFilterInt8x32Reorder = 1,
  kBiasInt8x32Reorder = 2,
};

// major * 10000 + minor * 100 + patch. Older ones were not looked at.
inline constexpr size_t kOldest = 90000;

}  // namespace cudnn

struct CudnnLibrary {
  // The file that MILLRACE_CUDNN names, else libcudnn.so.9. It stays open.
  // FAILED_PRECONDITION says in one sentence why it cannot be used.
  static StatusOr<std::shared_ptr<const CudnnLibrary>> Open();

  // What went wrong, for people.
  std::string TextOf(int status) const { return get_error_string(status); }
  std::string VersionText() const;  // "9.10.2"

  size_t version = 0;
  // As in NVIDIA's manual; each returns kSuccess or the number of an error.
  size_t (*get_version)() = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  int (*create)(cudnn::Handle*) = nullptr;
  int (*destroy)(cudnn::Handle) = nullptr;
  int (*set_stream)(cudnn::Handle, void* stream) = nullptr;
  int (*create_descriptor)(cudnn::Kind, cudnn::Descriptor*) = nullptr;
  int (*destroy_descriptor)(cudnn::Descriptor) = nullptr;
  int (*finalize)(cudnn::Descriptor) = nullptr;
  int (*set_attribute)(cudnn::Descriptor, cudnn::Attribute, cudnn::Type,
                       int64_t count, const void* values) = nullptr;
  // `most` 0 and no values: how many there are.
  int (*get_attribute)(cudnn::Descriptor, cudnn::Attribute, cudnn::Type,
                       int64_t most, int64_t* count, void* values) = nullptr;
  int (*execute)(cudnn::Handle, cudnn::Descriptor plan,
                 cudnn::Descriptor variant_pack) = nullptr;
};

}  // namespace millrace::models
