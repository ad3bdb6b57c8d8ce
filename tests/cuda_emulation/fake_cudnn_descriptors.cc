#include "tests/cuda_emulation/fake_cudnn_descriptors.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

namespace fake_cudnn {
namespace {

// Kinds of descriptors, and types of attributes.
constexpr int kPointwise = 0, kConvolution = 1, kEngine = 2, kConfig = 3,
              kHeuristics = 4, kPlan = 5, kKnob = 7, kForward = 10,
              kOperation = 13, kGraph = 15, kPack = 16, kTensor = 17;
constexpr int kHandleType = 0, kDataType = 1, kBoolean = 2, kInt64 = 3,
              kFloat = 4, kPointer = 6, kConvMode = 7, kHeurMode = 8,
              kKnobType = 9, kNumericalNote = 11, kPointwiseMode = 14,
              kDescriptor = 15, kBehaviorNote = 19;

enum Access { kRequired, kOptional, kReadOnly };
struct Rule {
  int kind, name, type;
  int64_t most;
  Access access = kRequired;
  int of = -1;  // of descriptors: their kind
};
constexpr int64_t kMany = 64, kMostDims = 8;
constexpr Rule kRules[] = {
    {kPointwise, 0, kPointwiseMode, 1},
    {kPointwise, 1, kDataType, 1},
    {kPointwise, 3, kFloat, 1, kOptional},
    {kPointwise, 4, kFloat, 1, kOptional},
    {kPointwise, 5, kFloat, 1, kOptional},
    {kPointwise, 6, kFloat, 1, kOptional},
    {kPointwise, 7, kFloat, 1, kOptional},
    {kPointwise, 8, kFloat, 1, kOptional},
    {kConvolution, 100, kDataType, 1},
    {kConvolution, 101, kConvMode, 1},
    {kConvolution, 102, kInt64, kMostDims},
    {kConvolution, 103, kInt64, kMostDims},
    {kConvolution, 104, kInt64, kMostDims},
    {kConvolution, 105, kInt64, kMostDims},
    {kConvolution, 106, kInt64, 1},
    {kEngine, 1300, kDescriptor, 1, kRequired, kGraph},
    {kEngine, 1301, kInt64, 1},
    {kEngine, 1303, kNumericalNote, kMany, kReadOnly},
    {kEngine, 1305, kBehaviorNote, kMany, kReadOnly},
    {kConfig, 300, kDescriptor, 1, kRequired, kEngine},
    {kConfig, 302, kDescriptor, kMany, kOptional, kKnob},
    {kHeuristics, 200, kHeurMode, 1},
    {kHeuristics, 201, kDescriptor, 1, kRequired, kGraph},
    {kHeuristics, 202, kDescriptor, kMany, kReadOnly, kConfig},
    {kPlan, 400, kHandleType, 1},
    {kPlan, 401, kDescriptor, 1, kRequired, kConfig},
    {kPlan, 402, kInt64, 1, kReadOnly},
    {kKnob, 600, kKnobType, 1},
    {kKnob, 601, kInt64, 1},
    {kForward, 700, kFloat, 1},
    {kForward, 701, kFloat, 1},
    {kForward, 702, kDescriptor, 1, kRequired, kConvolution},
    {kForward, 703, kDescriptor, 1, kRequired, kTensor},
    {kForward, 704, kDescriptor, 1, kRequired, kTensor},
    {kForward, 705, kDescriptor, 1, kRequired, kTensor},
    {kOperation, 750, kDescriptor, 1, kRequired, kPointwise},
    {kOperation, 751, kDescriptor, 1, kRequired, kTensor},
    {kOperation, 752, kDescriptor, 1, kOptional, kTensor},
    {kOperation, 753, kDescriptor, 1, kRequired, kTensor},
    {kGraph, 800, kHandleType, 1},
    {kGraph, 801, kDescriptor, kMany},
    {kPack, 1000, kInt64, kMany},
    {kPack, 1001, kPointer, kMany},
    {kPack, 1003, kPointer, 1},
    {kTensor, 900, kInt64, 1},
    {kTensor, 901, kDataType, 1},
    {kTensor, 902, kInt64, kMostDims},
    {kTensor, 903, kInt64, kMostDims},
    {kTensor, 906, kInt64, 1},
    {kTensor, 907, kBoolean, 1, kOptional},
};

const Rule* RuleOf(int kind, int name) {
  const auto at = std::find_if(
      std::begin(kRules), std::end(kRules),
      [&](const Rule& rule) { return rule.kind == kind && rule.name == name; });
  return at == std::end(kRules) ? nullptr : at;
}

// Calls come from several threads.
std::mutex guard;
std::map<void*, std::unique_ptr<Descriptor>> alive;
std::atomic<int> wrong_uses = 0;

const Descriptor& Of(const Descriptor& descriptor, int name, size_t i = 0) {
  return *Find(descriptor.pointers.at(name)[i]);
}

int FinalizeTensor(Descriptor& d) {
  Tensor t = {.id = d.ints[906][0],
              .type = static_cast<int>(d.ints[901][0]),
              .alignment = d.ints[900][0],
              .dims = d.ints[902],
              .strides = d.ints[903],
              .is_virtual = d.ints.contains(907) && d.ints[907][0] != 0};
  const auto is_positive = [](int64_t each) { return each > 0; };
  if (t.dims.size() != t.strides.size() ||
      !std::all_of(t.dims.begin(), t.dims.end(), is_positive) ||
      !std::all_of(t.strides.begin(), t.strides.end(), is_positive)) {
    return Wrong(kBadParam, "a tensor's sizes and strides");
  }
  if (t.type != kF32 && t.type != kF16 && t.type != kBf16) return kNotSupported;
  if (t.alignment <= 0 || t.alignment % BytesOf(t.type) != 0) {
    return Wrong(kBadParam, "a tensor's alignment");
  }
  d.tensor = std::move(t);
  return kFine;
}

int FinalizeConvolution(Descriptor& d) {
  const auto dims = static_cast<size_t>(d.ints[106][0]);
  for (const int name : {102, 103, 104, 105}) {
    const Sizes& sizes = d.ints[name];
    const int64_t least = name <= 103 ? 1 : 0;
    if (sizes.size() != dims ||
        std::any_of(sizes.begin(), sizes.end(),
                    [&](int64_t each) { return each < least; })) {
      return Wrong(kBadParam, "sizes of a convolution's window");
    }
  }
  if (d.ints[101][0] > 1) return Wrong(kBadParam, "a convolution's mode");
  return d.ints[100][0] == kF32 ? kFine : kNotSupported;
}

int FinalizeForward(Descriptor& d) {
  const Tensor& x = *Of(d, 704).tensor;
  const Tensor& w = *Of(d, 703).tensor;
  const Tensor& y = *Of(d, 705).tensor;
  const Descriptor& how = Of(d, 702);
  const auto dims = static_cast<size_t>(how.ints.at(106)[0]);
  const auto fits = [&] {
    if (x.dims.size() != dims + 2 || w.dims.size() != dims + 2 ||
        y.dims.size() != dims + 2 || x.dims[0] != y.dims[0] ||
        y.dims[1] != w.dims[0] || x.dims[1] % w.dims[1] != 0 ||
        w.dims[0] % (x.dims[1] / w.dims[1]) != 0) {
      return false;
    }
    for (size_t i = 0; i < dims; ++i) {
      const int64_t taken = how.ints.at(102)[i] * (w.dims[i + 2] - 1) + 1;
      const int64_t padded =
          x.dims[i + 2] + how.ints.at(105)[i] + how.ints.at(104)[i];
      if (padded < taken ||
          y.dims[i + 2] != (padded - taken) / how.ints.at(103)[i] + 1) {
        return false;
      }
    }
    return true;
  };
  if (!fits()) return Wrong(kBadParam, "sizes of a convolution's tensors");
  // Of what is fused with others; the rest this program has no use for.
  return d.floats[700] == 1 && d.floats[701] == 0 ? kFine : kNotSupported;
}

int FinalizeOperation(Descriptor& d) {
  const Tensor& x = *Of(d, 751).tensor;
  const Tensor& y = *Of(d, 753).tensor;
  const int64_t mode = Of(d, 750).ints.at(0)[0];
  const bool has_b = d.pointers.contains(752);
  if ((mode < 10) != has_b) return Wrong(kBadParam, "operands of a mode");
  if (x.dims != y.dims) return Wrong(kBadParam, "sizes of a result");
  if (!has_b) return kFine;
  const Tensor& b = *Of(d, 752).tensor;
  if (b.dims.size() != x.dims.size()) {
    return Wrong(kBadParam, "axes of a second operand");
  }
  for (size_t i = 0; i < b.dims.size(); ++i) {
    if (b.dims[i] != 1 && b.dims[i] != x.dims[i]) {
      return Wrong(kBadParam, "sizes of a second operand");
    }
  }
  return kFine;
}

Pointwise PointwiseOf(const Descriptor& node) {
  const Descriptor& how = Of(node, 750);
  Pointwise made;
  made.mode = static_cast<int>(how.ints.at(0)[0]);
  const auto read = [&](int name, float& to) {
    if (how.floats.contains(name)) to = how.floats.at(name);
  };
  read(3, made.lower);
  read(4, made.upper);
  read(5, made.slope);
  read(6, made.elu);
  read(7, made.softplus);
  read(8, made.swish);
  made.x = *Of(node, 751).tensor;
  made.y = *Of(node, 753).tensor;
  if (node.pointers.contains(752)) made.b = *Of(node, 752).tensor;
  return made;
}

// A convolution and a chain behind it, whose inner tensors are virtual.
int FinalizeGraph(Descriptor& d) {
  auto work = std::make_shared<Work>();
  std::map<int64_t, Tensor> seen;
  const auto see = [&](const Tensor& tensor) {
    const auto [at, is_new] = seen.emplace(tensor.id, tensor);
    if (!tensor.is_virtual) work->tensors.emplace(tensor.id, tensor);
    return is_new || at->second == tensor;
  };
  const size_t count = d.pointers[801].size();
  const Tensor* last = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const Descriptor& node = Of(d, 801, i);
    if (node.kind != (i == 0 ? kForward : kOperation)) return kNotSupported;
    if (i == 0) {
      const Descriptor& how = Of(node, 702);
      work->x = *Of(node, 704).tensor;
      work->w = *Of(node, 703).tensor;
      work->y = *Of(node, 705).tensor;
      work->window = {how.ints.at(102), how.ints.at(103), how.ints.at(105),
                      how.ints.at(104)};
      if (!see(work->x) || !see(work->w) || !see(work->y)) {
        return Wrong(kDuplicated, "an id of two tensors");
      }
      last = &work->y;
      continue;
    }
    work->chain.reserve(count);  // `last` points into it
    const Pointwise& next = work->chain.emplace_back(PointwiseOf(node));
    if (next.x != *last || !last->is_virtual) return kNotSupported;
    if (last->type != kF32) return kNotSupported;
    if (!see(next.y) || (next.b && !see(*next.b))) {
      return Wrong(kDuplicated, "an id of two tensors");
    }
    if (next.b && next.b->is_virtual) {
      return Wrong(kBadParam, "a virtual tensor that nothing writes");
    }
    last = &next.y;
  }
  if (last->is_virtual) {
    return Wrong(kBadParam, "a virtual tensor that nothing reads");
  }
  const Work& made = *work;
  if (made.x.type != made.w.type || made.x.is_virtual || made.w.is_virtual) {
    return kNotSupported;
  }
  d.work = std::move(work);
  return kFine;
}

int FinalizePack(Descriptor& d) {
  const Sizes& ids = d.ints[1000];
  if (ids.size() != d.pointers[1001].size()) {
    return Wrong(kBadParam, "as many pointers as ids");
  }
  return std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size()
             ? kFine
             : Wrong(kDuplicated, "an id of two pointers");
}

// What is made of others has what they have.
int Take(Descriptor& d) {
  switch (d.kind) {
    case kEngine:
      d.work = Of(d, 1300).work;
      d.engine = d.ints[1301][0];
      return kFine;
    case kHeuristics:
      d.work = Of(d, 201).work;
      return kFine;
    case kConfig:
      d.work = Of(d, 300).work;
      d.engine = Of(d, 300).engine;
      for (size_t i = 0; d.pointers.contains(302) && i < d.pointers[302].size();
           ++i) {
        const Descriptor& knob = Of(d, 302, i);
        d.knobs.emplace_back(static_cast<int>(knob.ints.at(600)[0]),
                             knob.ints.at(601)[0]);
      }
      return kFine;
    case kPlan:
      d.work = Of(d, 401).work;
      d.engine = Of(d, 401).engine;
      d.knobs = Of(d, 401).knobs;
      return kFine;
    case kTensor:
      return FinalizeTensor(d);
    case kConvolution:
      return FinalizeConvolution(d);
    case kForward:
      return FinalizeForward(d);
    case kOperation:
      return FinalizeOperation(d);
    case kGraph:
      return FinalizeGraph(d);
    case kPack:
      return FinalizePack(d);
    case kPointwise:
      return d.ints[1][0] == kF32 ? kFine : kNotSupported;
    default:
      return kFine;
  }
}

// Another descriptor as a value.
int Look(const Rule& rule, void* value) {
  const Descriptor* other = Find(value);
  if (other == nullptr) return Wrong(kBadParam, "a descriptor that is none");
  const bool fits = rule.of >= 0
                        ? other->kind == rule.of
                        : other->kind == kForward || other->kind == kOperation;
  if (!fits) return Wrong(kWrongKind, "a descriptor of another kind");
  return other->is_final ? kFine
                         : Wrong(kNotFinalized, "a part that is not final");
}

}  // namespace

int Wrong(int error, const char* why) {
  ++wrong_uses;
  std::fprintf(stderr, "fake_cudnn: wrong use (%d): %s\n", error, why);
  return error;
}
int WrongUses() { return wrong_uses; }
int Alive() {
  const std::lock_guard lock(guard);
  return static_cast<int>(alive.size());
}

int Create(int kind, void** made) {
  if (std::none_of(std::begin(kRules), std::end(kRules),
                   [&](const Rule& rule) { return rule.kind == kind; })) {
    return Wrong(kBadParam, "a kind that there is not");
  }
  auto descriptor = std::make_unique<Descriptor>(kind);
  *made = descriptor.get();
  const std::lock_guard lock(guard);
  alive.emplace(*made, std::move(descriptor));
  return kFine;
}
int Destroy(void* made) {
  const std::lock_guard lock(guard);
  return alive.erase(made) == 1 ? kFine
                                : Wrong(kBadParam, "destroying what is none");
}
Descriptor* Find(void* made) {
  const std::lock_guard lock(guard);
  const auto at = alive.find(made);
  return at == alive.end() ? nullptr : at->second.get();
}

bool IsReadable(int kind, int name, int type) {
  const Rule* rule = RuleOf(kind, name);
  return rule != nullptr && rule->type == type;
}

int Set(void* made, int name, int type, int64_t count, const void* values) {
  Descriptor* d = Find(made);
  if (d == nullptr) return Wrong(kBadParam, "setting what is no descriptor");
  if (d->is_final) return Wrong(kBadParam, "setting what is final");
  const Rule* rule = RuleOf(d->kind, name);
  if (rule == nullptr || rule->access == kReadOnly) {
    return Wrong(kBadParam, "an attribute that the descriptor has not");
  }
  if (rule->type != type) return Wrong(kWrongType, "an attribute's type");
  if (values == nullptr) return Wrong(kNullPointer, "no values");
  if (count < 1 || count > rule->most) {
    return Wrong(kOutOfBound, "how many values an attribute has");
  }
  const auto read = [&]<typename T>(T, size_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(values) + i * sizeof(T),
                sizeof(T));
    return value;
  };
  Sizes ints;
  std::vector<void*> pointers;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (type == kFloat) {
      d->floats[name] = read(float{}, i);
    } else if (type == kHandleType || type == kPointer || type == kDescriptor) {
      void* const value =
          pointers.emplace_back(read(static_cast<void*>(nullptr), i));
      if (type == kHandleType && value == nullptr) {
        return Wrong(kNullPointer, "no handle");
      }
      if (type != kDescriptor) continue;
      if (const int error = Look(*rule, value)) return error;
    } else {
      ints.push_back(type == kInt64     ? read(int64_t{}, i)
                     : type == kBoolean ? static_cast<int64_t>(read(bool{}, i))
                                        : static_cast<int64_t>(read(int{}, i)));
    }
  }
  if (!ints.empty()) d->ints[name] = std::move(ints);
  if (!pointers.empty()) d->pointers[name] = std::move(pointers);
  return kFine;
}

int Finalize(void* made, int (*support)(const Descriptor&)) {
  Descriptor* d = Find(made);
  if (d == nullptr) return Wrong(kBadParam, "finalizing what is none");
  if (d->is_final) return Wrong(kBadParam, "finalizing twice");
  for (const Rule& rule : kRules) {
    if (rule.kind != d->kind || rule.access != kRequired) continue;
    if (!d->ints.contains(rule.name) && !d->floats.contains(rule.name) &&
        !d->pointers.contains(rule.name)) {
      return Wrong(kBadParam, "a required attribute that is not set");
    }
  }
  if (const int error = Take(*d)) return error;
  if (const int error = support(*d)) return error;
  d->is_final = true;
  return kFine;
}

}  // namespace fake_cudnn
