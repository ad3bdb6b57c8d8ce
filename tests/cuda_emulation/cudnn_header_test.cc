// What models/gpu/cudnn_library.h says of cuDNN, held against NVIDIA's header.
// Built where that is installed; it fails while it is compiled.
#include <cudnn_graph.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "models/gpu/cudnn_library.h"

namespace millrace::models::cudnn {
namespace {

template <typename Ours, typename Theirs>
constexpr bool Is(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs) &&
         sizeof(Ours) == sizeof(Theirs);
}

static_assert(kSuccess == CUDNN_STATUS_SUCCESS);
static_assert(Is(Kind::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
static_assert(Is(Kind::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
static_assert(Is(Kind::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
static_assert(Is(Kind::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
static_assert(Is(Kind::kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
static_assert(Is(Kind::kExecutionPlan,
                 CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
static_assert(Is(Kind::kKnobChoice, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
static_assert(Is(Kind::kConvolutionForward,
                 CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
static_assert(Is(Kind::kPointwiseOperation,
                 CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
static_assert(Is(Kind::kOperationGraph,
                 CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
static_assert(Is(Kind::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(Is(Kind::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));

using A = Attribute;
static_assert(Is(A::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE));
static_assert(Is(A::kPointwiseMathType, CUDNN_ATTR_POINTWISE_MATH_PREC));
static_assert(Is(A::kReluLowerClip, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP));
static_assert(Is(A::kReluUpperClip, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP));
static_assert(Is(A::kReluLowerClipSlope,
                 CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE));
static_assert(Is(A::kEluAlpha, CUDNN_ATTR_POINTWISE_ELU_ALPHA));
static_assert(Is(A::kSoftplusBeta, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA));
static_assert(Is(A::kSwishBeta, CUDNN_ATTR_POINTWISE_SWISH_BETA));
static_assert(Is(A::kConvolutionComputeType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
static_assert(Is(A::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE));
static_assert(Is(A::kConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS));
static_assert(Is(A::kConvolutionStrides,
                 CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES));
static_assert(Is(A::kConvolutionPostPaddings,
                 CUDNN_ATTR_CONVOLUTION_POST_PADDINGS));
static_assert(Is(A::kConvolutionPrePaddings,
                 CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS));
static_assert(Is(A::kConvolutionSpatialDims,
                 CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
static_assert(Is(A::kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE));
static_assert(Is(A::kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
static_assert(Is(A::kHeuristicsResults, CUDNN_ATTR_ENGINEHEUR_RESULTS));
static_assert(Is(A::kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE));
static_assert(Is(A::kConfigKnobChoices, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES));
static_assert(Is(A::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
static_assert(Is(A::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
static_assert(Is(A::kPlanWorkspaceSize,
                 CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(Is(A::kKnobType, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE));
static_assert(Is(A::kKnobValue, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
static_assert(Is(A::kForwardAlpha,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA));
static_assert(Is(A::kForwardBeta,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA));
static_assert(Is(A::kForwardConvolution,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
static_assert(Is(A::kForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W));
static_assert(Is(A::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
static_assert(Is(A::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
static_assert(Is(A::kOperationPointwise,
                 CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
static_assert(Is(A::kOperationX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
static_assert(Is(A::kOperationB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
static_assert(Is(A::kOperationY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
static_assert(Is(A::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
static_assert(Is(A::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS));
static_assert(Is(A::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
static_assert(Is(A::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE));
static_assert(Is(A::kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS));
static_assert(Is(A::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES));
static_assert(Is(A::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID));
static_assert(Is(A::kTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL));
static_assert(Is(A::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS));
static_assert(Is(A::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(Is(A::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
static_assert(Is(A::kEngineGraph, CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
static_assert(Is(A::kEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
static_assert(Is(A::kEngineNumericalNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
static_assert(Is(A::kEngineBehaviorNotes, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE));

static_assert(Is(Type::kHandle, CUDNN_TYPE_HANDLE));
static_assert(Is(Type::kDataType, CUDNN_TYPE_DATA_TYPE));
static_assert(Is(Type::kBoolean, CUDNN_TYPE_BOOLEAN));
static_assert(Is(Type::kInt64, CUDNN_TYPE_INT64));
static_assert(Is(Type::kFloat, CUDNN_TYPE_FLOAT));
static_assert(Is(Type::kPointer, CUDNN_TYPE_VOID_PTR));
static_assert(Is(Type::kConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE));
static_assert(Is(Type::kHeuristicsMode, CUDNN_TYPE_HEUR_MODE));
static_assert(Is(Type::kKnobType, CUDNN_TYPE_KNOB_TYPE));
static_assert(Is(Type::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE));
static_assert(Is(Type::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE));
static_assert(Is(Type::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(Is(Type::kBehaviorNote, CUDNN_TYPE_BEHAVIOR_NOTE));

static_assert(Is(DataType::kF32, CUDNN_DATA_FLOAT));
static_assert(Is(DataType::kF16, CUDNN_DATA_HALF));
static_assert(Is(DataType::kBf16, CUDNN_DATA_BFLOAT16));
static_assert(Is(ConvolutionMode::kCrossCorrelation, CUDNN_CROSS_CORRELATION));
static_assert(Is(HeuristicsMode::kA, CUDNN_HEUR_MODE_A));
static_assert(Is(PointwiseMode::kAdd, CUDNN_POINTWISE_ADD));
static_assert(Is(PointwiseMode::kMul, CUDNN_POINTWISE_MUL));
static_assert(Is(PointwiseMode::kRelu, CUDNN_POINTWISE_RELU_FWD));
static_assert(Is(PointwiseMode::kTanh, CUDNN_POINTWISE_TANH_FWD));
static_assert(Is(PointwiseMode::kSigmoid, CUDNN_POINTWISE_SIGMOID_FWD));
static_assert(Is(PointwiseMode::kElu, CUDNN_POINTWISE_ELU_FWD));
static_assert(Is(PointwiseMode::kGelu, CUDNN_POINTWISE_GELU_FWD));
static_assert(Is(PointwiseMode::kSoftplus, CUDNN_POINTWISE_SOFTPLUS_FWD));
static_assert(Is(PointwiseMode::kSwish, CUDNN_POINTWISE_SWISH_FWD));
static_assert(Is(PointwiseMode::kGeluTanh,
                 CUDNN_POINTWISE_GELU_APPROX_TANH_FWD));

using N = NumericalNote;
static_assert(Is(N::kTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
static_assert(Is(N::kDownConvertInputs,
                 CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
static_assert(Is(N::kReducedPrecisionReduction,
                 CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
static_assert(Is(N::kFft, CUDNN_NUMERICAL_NOTE_FFT));
static_assert(Is(N::kNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
static_assert(Is(N::kWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD));
static_assert(Is(N::kWinograd4, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4));
static_assert(Is(N::kWinograd6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6));
static_assert(Is(N::kWinograd13, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13));
static_assert(Is(BehaviorNote::kFilterInt8x32Reorder,
                 CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER));
static_assert(Is(BehaviorNote::kBiasInt8x32Reorder,
                 CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER));

// How many arguments each has, and the size of each: those are passed alike.
template <typename Ours, typename Other>
struct IsAlike : std::false_type {};
template <typename R, typename... As, typename T, typename... Bs>
requires(sizeof...(As) ==
         sizeof...(Bs)) struct IsAlike<R (*)(As...), T (*)(Bs...)>
    : std::bool_constant<sizeof(R) == sizeof(T) &&
                         ((sizeof(As) == sizeof(Bs) &&
                           std::is_pointer_v<As> ==
                               std::is_pointer_v<Bs>)&&...)> {
};

#define EXPECT_ALIKE(member, theirs) \
  static_assert(                     \
      IsAlike<decltype(CudnnLibrary::member), decltype(&theirs)>::value)
EXPECT_ALIKE(get_version, cudnnGetVersion);
EXPECT_ALIKE(get_error_string, cudnnGetErrorString);
EXPECT_ALIKE(create, cudnnCreate);
EXPECT_ALIKE(destroy, cudnnDestroy);
EXPECT_ALIKE(set_stream, cudnnSetStream);
EXPECT_ALIKE(create_descriptor, cudnnBackendCreateDescriptor);
EXPECT_ALIKE(destroy_descriptor, cudnnBackendDestroyDescriptor);
EXPECT_ALIKE(finalize, cudnnBackendFinalize);
EXPECT_ALIKE(set_attribute, cudnnBackendSetAttribute);
EXPECT_ALIKE(get_attribute, cudnnBackendGetAttribute);
EXPECT_ALIKE(execute, cudnnBackendExecute);
#undef EXPECT_ALIKE

TEST(CudnnHeader, SaysTheSame) { SUCCEED() << "or this does not compile"; }

}  // namespace
}  // namespace millrace::models::cudnn
