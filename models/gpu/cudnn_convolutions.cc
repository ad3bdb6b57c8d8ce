#include "models/gpu/cudnn_convolutions.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace millrace::models {
namespace {

using cuda::GraphFormat;
using cuda::GraphPrecision;
using cudnn::Attribute;
using cudnn::BehaviorNote;
using cudnn::Kind;
using cudnn::NumericalNote;
using cudnn::Type;

// Configurations that the heuristics are asked for, and what they may hold.
constexpr int64_t kMostCandidates = 16;
constexpr int64_t kMostKnobs = 64;
constexpr int64_t kMostNotes = 32;

// Whether an engine with this note multiplies as the precision says and gives
// the same bits in each run. Sums in 16 bits, and products that are made of
// transformed images (FFT, Winograd), lose more than the precision says.
bool Allows(GraphPrecision precision, NumericalNote note) {
  switch (note) {
    case NumericalNote::kNondeterministic:
    case NumericalNote::kDownConvertInputs:
    case NumericalNote::kReducedPrecisionReduction:
    case NumericalNote::kFft:
    case NumericalNote::kWinograd:
    case NumericalNote::kWinograd4:
    case NumericalNote::kWinograd6:
    case NumericalNote::kWinograd13:
      return false;
    case NumericalNote::kTensorCore:  // of f32: tf32
      return precision != GraphPrecision::kF32;
  }
  return true;  // strict NaNs, and what is newer than this list
}
// Weights in another order than they lie in.
bool Allows(BehaviorNote note) {
  return note != BehaviorNote::kFilterInt8x32Reorder &&
         note != BehaviorNote::kBiasInt8x32Reorder;
}

// Values of some -2 to 2, whose sums are rounded in each addition: exponents
// -6 to 0, all bits behind the point.
std::vector<std::byte> RandomValues(std::mt19937& random, GraphFormat format,
                                    int64_t bytes) {
  const auto width = static_cast<size_t>(cuda::BytesOf(format));
  std::vector<std::byte> values(static_cast<size_t>(bytes));
  for (size_t at = 0; at < values.size(); at += width) {
    const uint32_t bits = random();
    const uint32_t less = (bits >> 16 & 0xff) % 7;
    uint32_t value =
        (bits & 0x80000000) | (127 - less) << 23 | (random() & 0x7fffff);
    if (format == GraphFormat::kF16) {
      value = (bits >> 16 & 0x8000) | (15 - less) << 10 | (bits & 0x3ff);
    } else if (format == GraphFormat::kBf16) {
      value = (bits >> 16 & 0x8000) | (127 - less) << 7 | (bits & 0x7f);
    }
    std::memcpy(values.data() + at, &value, width);
  }
  return values;
}

// Whether some value is a number, not NaN.
bool HasNumber(GraphFormat format, const std::vector<std::byte>& values) {
  const auto width = static_cast<size_t>(cuda::BytesOf(format));
  for (size_t at = 0; at < values.size(); at += width) {
    uint32_t bits = 0;
    std::memcpy(&bits, values.data() + at, width);
    const bool is_nan = format == GraphFormat::kF16 ? (bits & 0x7fff) > 0x7c00
                        : format == GraphFormat::kBf16
                            ? (bits & 0x7fff) > 0x7f80
                            : (bits & 0x7fffffff) > 0x7f800000;
    if (!is_nan) return true;
  }
  return false;
}

std::vector<std::byte> Repeat(const std::vector<std::byte>& image,
                              int32_t times) {
  std::vector<std::byte> all;
  all.reserve(image.size() * static_cast<size_t>(times));
  for (int32_t i = 0; i < times; ++i) {
    all.insert(all.end(), image.begin(), image.end());
  }
  return all;
}

}  // namespace

// Equal images, and room for their results.
struct CudnnConvolutions::Trial {
  CudaBuffer x, w, bias, residual, gate, y, expected, workspace;
  CudaBuffer on_device, on_host;  // what differs
};

CudnnConvolution::~CudnnConvolution() {
  plans_.clear();
  if (handle_ != nullptr) library_->destroy(handle_);
}

Status CudnnConvolutions::Failed(const std::string& what, int error) const {
  return Internal("cuda:" + std::to_string(context_->device().ordinal) +
                  " failed: cuDNN cannot " + what + ": " +
                  library_->TextOf(error));
}

StatusOr<std::unique_ptr<CudnnConvolutions>> CudnnConvolutions::Open(
    std::shared_ptr<CudaContext> context) {
  ASSIGN_OR_RETURN(auto library, CudnnLibrary::Open());
  RETURN_IF_ERROR(context->MakeCurrent());
  std::unique_ptr<CudnnConvolutions> cudnn(
      new CudnnConvolutions(std::move(library), std::move(context)));
  cudnn::Handle handle = nullptr;  // whether any can be made
  const int error = cudnn->library_->create(&handle);
  if (error != cudnn::kSuccess) {
    return FailedPrecondition(
               "cuDNN " + cudnn->VersionText() + " cannot serve cuda:" +
               std::to_string(cudnn->context_->device().ordinal) + ": " +
               cudnn->library_->TextOf(error) + "; set conv_backend to native")
        .At("conv_backend");
  }
  cudnn->library_->destroy(handle);
  return cudnn;
}

int32_t CudnnConvolutions::CallImages(const ConvShape& shape) {
  int32_t images = 1;
  while (images < kMostCallImages &&
         images * shape.out_pixels() < kEnoughPixels) {
    images *= 4;
  }
  return images;
}

std::optional<CudnnConvolutions::Candidate> CudnnConvolutions::Read(
    const ConvShape& shape, CudnnDescriptor& config) const {
  std::vector<CudnnDescriptor> engines =
      config.GetDescriptors(Attribute::kConfigEngine, Kind::kEngine, 1);
  if (engines.empty()) return std::nullopt;
  CudnnDescriptor& engine = engines.front();
  for (const int note : engine.GetEnums(Attribute::kEngineNumericalNotes,
                                        Type::kNumericalNote, kMostNotes)) {
    if (!Allows(shape.precision, static_cast<NumericalNote>(note))) {
      return std::nullopt;
    }
  }
  for (const int note : engine.GetEnums(Attribute::kEngineBehaviorNotes,
                                        Type::kBehaviorNote, kMostNotes)) {
    if (!Allows(static_cast<BehaviorNote>(note))) return std::nullopt;
  }
  Candidate candidate;
  candidate.engine = engine.GetInt(Attribute::kEngineIndex);
  for (CudnnDescriptor& knob : config.GetDescriptors(
           Attribute::kConfigKnobChoices, Kind::kKnobChoice, kMostKnobs)) {
    const std::vector<int> type =
        knob.GetEnums(Attribute::kKnobType, Type::kKnobType, 1);
    const int64_t value = knob.GetInt(Attribute::kKnobValue);
    if (knob.error() != cudnn::kSuccess || type.empty()) return std::nullopt;
    candidate.knobs.emplace_back(type.front(), value);
  }
  const bool was_read =
      engine.error() == cudnn::kSuccess && config.error() == cudnn::kSuccess;
  return was_read ? std::optional(candidate) : std::nullopt;
}

std::vector<CudnnConvolutions::Candidate> CudnnConvolutions::Candidates(
    const ConvShape& shape, const CudnnGraph& graph) const {
  CudnnDescriptor heuristics(library_, Kind::kHeuristics);
  heuristics.SetDescriptor(Attribute::kHeuristicsGraph, graph.graph);
  heuristics.SetEnum(Attribute::kHeuristicsMode, Type::kHeuristicsMode,
                     cudnn::HeuristicsMode::kA);
  heuristics.Finalize();
  std::vector<Candidate> candidates;
  for (CudnnDescriptor& config :
       heuristics.GetDescriptors(Attribute::kHeuristicsResults,
                                 Kind::kEngineConfig, kMostCandidates)) {
    auto candidate = Read(shape, config);
    if (candidate) candidates.push_back(*std::move(candidate));
  }
  return candidates;
}

CudnnDescriptor CudnnConvolutions::PlanOf(const Candidate& candidate,
                                          cudnn::Handle handle,
                                          CudnnConvolution::Plan& plan) const {
  CudnnDescriptor engine(library_, Kind::kEngine);
  engine.SetDescriptor(Attribute::kEngineGraph, plan.graph.graph);
  engine.SetInt(Attribute::kEngineIndex, candidate.engine);
  engine.Finalize();
  CudnnDescriptor config(library_, Kind::kEngineConfig);
  config.SetDescriptor(Attribute::kConfigEngine, engine);
  plan.parts.push_back(std::move(engine));
  std::vector<cudnn::Descriptor> knobs;
  for (const auto& [type, value] : candidate.knobs) {
    CudnnDescriptor knob(library_, Kind::kKnobChoice);
    knob.SetEnum(Attribute::kKnobType, Type::kKnobType, type);
    knob.SetInt(Attribute::kKnobValue, value);
    knob.Finalize();
    config.TakeError(knob);
    knobs.push_back(knob.get());
    plan.parts.push_back(std::move(knob));
  }
  if (!knobs.empty()) {
    config.SetDescriptors(Attribute::kConfigKnobChoices, knobs);
  }
  config.Finalize();
  CudnnDescriptor execution(library_, Kind::kExecutionPlan);
  execution.SetHandle(Attribute::kPlanHandle, handle);
  execution.SetDescriptor(Attribute::kPlanConfig, config);
  execution.Finalize();
  plan.parts.push_back(std::move(config));
  return execution;
}

bool CudnnConvolutions::Build(const Candidate& candidate,
                              CudnnConvolution& convolution) const {
  convolution.engine_ = candidate.engine;
  convolution.workspace_bytes_ = 0;
  for (CudnnConvolution::Plan& plan : convolution.plans_) {
    plan.plan = CudnnDescriptor();
    plan.parts.clear();
    plan.plan = PlanOf(candidate, convolution.handle_, plan);
    const int64_t bytes = plan.plan.GetInt(Attribute::kPlanWorkspaceSize);
    if (plan.plan.error() != cudnn::kSuccess || bytes > kWorkspaceBytes) {
      return false;
    }
    convolution.workspace_bytes_ =
        std::max(convolution.workspace_bytes_, bytes);
  }
  return true;
}

int CudnnConvolutions::CallOnce(const CudnnConvolution& convolution,
                                const CudnnConvolution::Plan& plan,
                                const ConvPlaces& places,
                                cuda::Stream stream) const {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  const auto add = [&](ConvTensor tensor, const std::byte* at) {
    ids.push_back(static_cast<int64_t>(tensor));
    pointers.push_back(const_cast<std::byte*>(at));
  };
  const ConvShape& shape = convolution.shape();
  add(ConvTensor::kX, places.x);
  add(ConvTensor::kW, places.w);
  add(ConvTensor::kY, places.y);
  if (shape.has_bias) add(ConvTensor::kBias, places.bias);
  if (shape.residual) add(ConvTensor::kResidual, places.residual);
  if (shape.gate) add(ConvTensor::kGate, places.gate);
  CudnnDescriptor pack(library_, Kind::kVariantPack);
  pack.SetInts(Attribute::kPackIds, ids);
  pack.SetPointers(Attribute::kPackPointers, pointers);
  void* const workspace = places.workspace;
  pack.SetPointers(Attribute::kPackWorkspace, {&workspace, 1});
  pack.Finalize();
  if (pack.error() != cudnn::kSuccess) return pack.error();
  MutexLock lock(convolution.mu_);
  const int error = library_->set_stream(convolution.handle_, stream);
  return error != cudnn::kSuccess
             ? error
             : library_->execute(convolution.handle_, plan.plan.get(),
                                 pack.get());
}

int CudnnConvolutions::Call(const CudnnConvolution& convolution, int64_t images,
                            ConvPlaces places, cuda::Stream stream) const {
  const ConvShape& shape = convolution.shape();
  for (const CudnnConvolution::Plan& plan : convolution.plans_) {
    for (; images >= plan.images; images -= plan.images) {
      const int error = CallOnce(convolution, plan, places, stream);
      if (error != cudnn::kSuccess) return error;
      places.x += plan.images * shape.x_bytes();
      places.y += plan.images * shape.y_bytes(shape.y);
      if (shape.residual) {
        places.residual += plan.images * shape.y_bytes(*shape.residual);
      }
      if (shape.gate) places.gate += plan.images * shape.y_bytes(*shape.gate);
    }
  }
  return cudnn::kSuccess;
}

StatusOr<CudnnConvolutions::Trial> CudnnConvolutions::NewTrial(
    const ConvShape& shape) {
  const std::string what = "trying the convolutions of cuDNN";
  const int32_t images = CallImages(shape);
  std::mt19937 random(1);
  const auto put = [&](CudaBuffer& buffer, GraphFormat format, int64_t bytes,
                       int32_t times) -> Status {
    const std::vector<std::byte> values =
        Repeat(RandomValues(random, format, bytes), times);
    const auto size = static_cast<int64_t>(values.size());
    ASSIGN_OR_RETURN(buffer, context_->Allocate(size, what));
    RETURN_IF_ERROR(context_->Upload(buffer.data(), values.data(), size));
    return context_->Wait();
  };
  Trial trial;
  RETURN_IF_ERROR(put(trial.x, shape.factors(), shape.x_bytes(), images));
  RETURN_IF_ERROR(put(trial.w, shape.factors(), shape.w_bytes(), 1));
  if (shape.has_bias) {
    RETURN_IF_ERROR(put(trial.bias, GraphFormat::kF32, shape.outputs * 4, 1));
  }
  for (const auto& [format, buffer] :
       {std::pair{shape.residual, &trial.residual},
        std::pair{shape.gate, &trial.gate}}) {
    if (!format) continue;
    RETURN_IF_ERROR(put(*buffer, *format, shape.y_bytes(*format), images));
  }
  const int64_t y_bytes = shape.y_bytes(shape.y);
  ASSIGN_OR_RETURN(trial.y, context_->Allocate(images * y_bytes, what));
  ASSIGN_OR_RETURN(trial.expected, context_->Allocate(y_bytes, what));
  ASSIGN_OR_RETURN(trial.workspace, context_->Allocate(kWorkspaceBytes, what));
  ASSIGN_OR_RETURN(trial.on_device, context_->Allocate(images * 4, what));
  ASSIGN_OR_RETURN(trial.on_host, context_->AllocateHost(images * 4, what));
  return trial;
}

StatusOr<bool> CudnnConvolutions::IsUsable(const CudnnConvolution& convolution,
                                           const Trial& trial) {
  const ConvShape& shape = convolution.shape();
  const cuda::Stream stream = context_->device().stream;
  ConvPlaces places = {.x = trial.x.data(),
                       .w = trial.w.data(),
                       .bias = trial.bias.data(),
                       .residual = trial.residual.data(),
                       .gate = trial.gate.data(),
                       .y = trial.expected.data(),
                       .workspace = trial.workspace.data()};
  if (Call(convolution, 1, places, stream) != cudnn::kSuccess) return false;
  // NaNs are as equal as numbers are.
  std::vector<std::byte> y(static_cast<size_t>(shape.y_bytes(shape.y)));
  RETURN_IF_ERROR(context_->Download(y.data(), trial.expected.data(),
                                     static_cast<int64_t>(y.size())));
  RETURN_IF_ERROR(context_->Wait());
  if (!HasNumber(shape.y, y)) return false;
  places.y = trial.y.data();
  const int64_t words = shape.y_bytes(shape.y) / 4;  // whole: kConvAlignment
  for (const CudnnConvolution::Plan& plan : convolution.plans_) {
    if (CallOnce(convolution, plan, places, stream) != cudnn::kSuccess) {
      return false;
    }
    RETURN_IF_ERROR(context_->Launched(context_->module().compare_rows(
        stream, {.x = trial.y.as<float>(),
                 .pitch = words,
                 .expected = trial.expected.as<float>(),
                 .width = static_cast<int32_t>(words),
                 .rows = plan.images,
                 .differs = trial.on_device.as<int32_t>()})));
    auto* const differs = trial.on_host.as<int32_t>();
    RETURN_IF_ERROR(context_->Download(differs, trial.on_device.data(),
                                       int64_t{plan.images} * 4));
    RETURN_IF_ERROR(context_->Wait());
    if (std::find(differs, differs + plan.images, 1) != differs + plan.images) {
      return false;
    }
  }
  return true;
}

StatusOr<std::unique_ptr<const CudnnConvolution>> CudnnConvolutions::Choose(
    const ConvShape& shape) {
  RETURN_IF_ERROR(context_->MakeCurrent());
  std::unique_ptr<CudnnConvolution> convolution(
      new CudnnConvolution(shape, library_));
  const int created = library_->create(&convolution->handle_);
  if (created != cudnn::kSuccess) {
    convolution->handle_ = nullptr;
    return Failed("make a handle", created);
  }
  for (int32_t images = CallImages(shape); images > 0; images /= 4) {
    convolution->plans_.push_back(
        {.images = images,
         .graph =
             DescribeConvolution(library_, convolution->handle_, shape, images),
         .parts = {},
         .plan = {}});
    const int error = convolution->plans_.back().graph.graph.error();
    if (error != cudnn::kSuccess) return Failed("describe a layer", error);
  }
  std::optional<Trial> trial;
  for (const Candidate& candidate :
       Candidates(shape, convolution->plans_.front().graph)) {
    if (!Build(candidate, *convolution)) continue;
    if (!trial) {
      ASSIGN_OR_RETURN(trial, NewTrial(shape));
    }
    ASSIGN_OR_RETURN(const bool usable, IsUsable(*convolution, *trial));
    if (usable) {
      return std::unique_ptr<const CudnnConvolution>(std::move(convolution));
    }
  }
  return std::unique_ptr<const CudnnConvolution>();
}

}  // namespace millrace::models
