// A libcudnn.so.9 on the emulated module: convolutions and what is behind them
// by plain loops, as work of the emulated stream. It refuses what the real one
// would (fake_cudnn_descriptors.h), and pointers that are null or not aligned
// as was said.
//
// Its engines, the best first for the heuristics (mode A alone):
//   0  is not deterministic         1  Winograd      2  adds in 16 bits
//   3  wants weights in another order
//   4  needs a workspace of 128 MiB
//   5  tensor cores, a knob, a workspace of 1 MiB; rounds f32 to tf32
//   6  likewise, another order of sums
//   7  no tensor cores
//
//   MILLRACE_FAKE_CUDNN_VERSION  what it says it is: 8907 for 8.9.7
//   MILLRACE_FAKE_CUDNN          one of
//       create      no handle can be made
//       none        the heuristics know no engine
//       uneven      engine 5 adds in another order in the second half of a
//                   call's images
//       all_uneven  so do all
//       nan         engine 5 gives NaN everywhere
//       unfused     engine 5 builds no plan with anything behind the sums
//       execute:N   the N-th execution fails
//       hold        plans are not built until it is told something else
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>

#include "tests/cuda_emulation/fake_cudnn_descriptors.h"
#include "tests/cuda_emulation/fake_cudnn_handles.h"

namespace {

using namespace fake_cudnn;

constexpr int64_t kEngines = 8;
constexpr int kKnob = 3, kKnobValue = 2;
constexpr int64_t kWorkspace = 1 << 20;

std::atomic<int> executions = 0;
std::atomic<int> last_engine = -1;
std::atomic<int> held = 0;
bool Told(const std::string& what) {
  const char* text = std::getenv("MILLRACE_FAKE_CUDNN");
  return text != nullptr && what == text;
}

void Do(std::function<void()> work) {
  void* module =
      dlopen(std::getenv("MILLRACE_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
  void* found =
      module == nullptr ? nullptr : dlsym(module, "millrace_emulated_do");
  if (found == nullptr) {
    std::fprintf(stderr, "fake_cudnn: the module is not the emulated one\n");
    std::abort();
  }
  reinterpret_cast<void (*)(std::function<void()>*)>(found)(&work);
}

int TwoThreads() { return Wrong(kBadParam, "a handle of two threads"); }

Sizes NumericalNotes(int64_t engine) {
  if (engine == 7) return {9};  // strict NaNs
  Sizes notes = {0};            // tensor cores
  if (engine == 0) notes.push_back(4);
  if (engine == 1) notes.push_back(5);
  if (engine == 2) notes.push_back(2);
  return notes;
}
Sizes BehaviorNotes(int64_t engine) {
  return engine == 3 ? Sizes{1} : Sizes{0};  // compiled when it is built
}
int64_t WorkspaceOf(int64_t engine) {
  return engine == 4                  ? int64_t{128} << 20
         : engine == 5 || engine == 6 ? kWorkspace
                                      : 0;
}

// What engines decide of a descriptor that is about to be final.
int Support(const Descriptor& d) {
  if (d.kind == 2 && (d.engine < 0 || d.engine >= kEngines)) {
    return kNotSupported;
  }
  if (d.kind == 4 && d.ints.at(200)[0] != 3) {
    return Wrong(kBadParam, "not the heuristics that keep an order");
  }
  if (d.kind == 3) {
    const bool has_knob = d.engine == 5 || d.engine == 6;
    if (d.knobs.size() != (has_knob ? 1u : 0u)) return kNotSupported;
    if (has_knob && d.knobs[0] != std::pair<int, int64_t>{kKnob, kKnobValue}) {
      return Wrong(kNotSupported, "a knob that was not set as proposed");
    }
  }
  if ((d.kind == 5 && !IsHandle(d.pointers.at(400)[0])) ||
      (d.kind == 15 && !IsHandle(d.pointers.at(800)[0]))) {
    return Wrong(kBadParam, "a handle that is none");
  }
  if (d.kind == 5) {
    const Use use(d.pointers.at(400)[0], Use::For::kPlan);
    if (!use.is_alone()) return TwoThreads();
    if (Told("hold")) ++held;
    while (Told("hold")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (d.kind == 5 && d.engine == 5 && Told("unfused") &&
      !d.work->chain.empty()) {
    return kNotSupported;
  }
  return kFine;
}

// ---- arithmetic ----

float RoundToTf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x1000) & ~0x1fffu;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}
float Load(const void* at, int64_t i, int type) {
  if (type == kF32) return static_cast<const float*>(at)[i];
  if (type == kF16) {
    return static_cast<float>(static_cast<const _Float16*>(at)[i]);
  }
  const uint32_t bits =
      static_cast<uint32_t>(static_cast<const uint16_t*>(at)[i]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
void Store(float value, void* at, int64_t i, int type) {
  if (type == kF32) {
    static_cast<float*>(at)[i] = value;
  } else if (type == kF16) {
    static_cast<_Float16*>(at)[i] = static_cast<_Float16>(value);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);  // to even; no NaNs here
    static_cast<uint16_t*>(at)[i] = static_cast<uint16_t>(bits >> 16);
  }
}

// Of the logical index (row-major), the place in memory; axes of size 1 repeat.
int64_t PlaceOf(const Tensor& tensor, const Sizes& index) {
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    if (tensor.dims[i] > 1) at += index[i] * tensor.strides[i];
  }
  return at;
}
// The next index, false behind the last.
bool Next(const Sizes& dims, Sizes& index) {
  for (size_t axis = dims.size(); axis-- > 0;) {
    if (++index[axis] < dims[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

float Apply(const Pointwise& p, float x, float b) {
  switch (p.mode) {
    case 0:
      return x + b;
    case 1:
      return x * b;
    case 100:
      if (x < p.lower) return p.lower + p.slope * (x - p.lower);
      return x > p.upper ? p.upper : x;
    case 101:
      return std::tanh(x);
    case 102:
      return 1 / (1 + std::exp(-x));
    case 103:
      return x < 0 ? p.elu * (std::exp(x) - 1) : x;
    case 104:
      return x / 2 * (1 + std::erf(x * 0.70710678f));
    case 105:
      return std::log(1 + std::exp(p.softplus * x)) / p.softplus;
    case 106:
      return x / (1 + std::exp(-p.swish * x));
    default:
      return 0.5f * x *
             (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
  }
}

using Places = std::map<int64_t, void*>;

// Eight sums by the place of a product, which are added in some order.
struct Sum {
  float lanes[8] = {};
  int next = 0;
  void Add(float product) { lanes[next++ & 7] += product; }
  float Total(bool backwards) const {
    float sum = 0;
    for (int j = 0; j < 8; ++j) sum += lanes[backwards ? 7 - j : j];
    return sum;
  }
};

void Compute(const Work& work, int64_t engine, bool uneven, bool nan,
             const Places& places) {
  const bool rounds = work.x.type == kF32 && engine != 7;
  const void* x = places.at(work.x.id);
  const void* w = places.at(work.w.id);
  const auto load = [&](const void* at, int64_t i, int type) {
    const float value = Load(at, i, type);
    return rounds ? RoundToTf32(value) : value;
  };
  const int64_t channels = work.w.dims[1];
  const int64_t outputs = work.w.dims[0] / work.groups();
  const Tensor& last = work.chain.empty() ? work.y : work.chain.back().y;
  const Sizes taps(work.w.dims.begin() + 2, work.w.dims.end());
  Sizes index(work.y.dims.size(), 0);
  do {
    Sum sum;
    Sizes tap(taps.size(), 0);
    do {
      Sizes from = index, weight = index;
      weight[0] = index[1];
      bool is_inside = true;
      for (size_t i = 0; i < taps.size(); ++i) {
        from[i + 2] = index[i + 2] * work.window.stride[i] -
                      work.window.pre[i] + tap[i] * work.window.dilation[i];
        is_inside =
            is_inside && from[i + 2] >= 0 && from[i + 2] < work.x.dims[i + 2];
        weight[i + 2] = tap[i];
      }
      if (!is_inside) continue;
      from[1] = index[1] / outputs * channels;
      weight[1] = 0;
      const int64_t x_at = PlaceOf(work.x, from);
      const int64_t w_at = PlaceOf(work.w, weight);
      for (int64_t c = 0; c < channels; ++c) {
        sum.Add(load(x, x_at + c * work.x.strides[1], work.x.type) *
                load(w, w_at + c * work.w.strides[1], work.w.type));
      }
    } while (Next(taps, tap));
    const bool is_behind = uneven && index[0] >= (work.images() + 1) / 2;
    float value = sum.Total((engine == 6) != is_behind);
    for (const Pointwise& p : work.chain) {
      const float b =
          p.b ? Load(places.at(p.b->id), PlaceOf(*p.b, index), p.b->type) : 0;
      value = Apply(p, value, b);
    }
    if (nan) value = std::numeric_limits<float>::quiet_NaN();
    Store(value, places.at(last.id), PlaceOf(last, index), last.type);
  } while (Next(work.y.dims, index));
}

// An integer attribute as a list.
int Answer(const Sizes& all, bool as_int64, int64_t most, int64_t* count,
           void* values) {
  *count = static_cast<int64_t>(all.size());
  if (values == nullptr) return kFine;
  for (int64_t i = 0; i < std::min(most, *count); ++i) {
    if (as_int64) {
      static_cast<int64_t*>(values)[i] = all[static_cast<size_t>(i)];
    } else {
      static_cast<int*>(values)[i] =
          static_cast<int>(all[static_cast<size_t>(i)]);
    }
  }
  return kFine;
}

// The i-th of descriptors that the caller made to be filled.
Descriptor* Place(void* values, int64_t i, int kind) {
  Descriptor* to = Find(static_cast<void**>(values)[i]);
  return to != nullptr && to->kind == kind && !to->is_final ? to : nullptr;
}
int NoPlace() { return Wrong(kBadParam, "no descriptor to be filled"); }

int Results(const Descriptor& heuristics, int64_t most, int64_t* count,
            void* values) {
  *count = Told("none") ? 0 : std::min(most, kEngines);
  for (int64_t i = 0; i < *count; ++i) {
    Descriptor* to = Place(values, i, 3);
    if (to == nullptr) return NoPlace();
    to->work = heuristics.work;
    to->engine = i;
    if (i == 5 || i == 6) to->knobs = {{kKnob, kKnobValue}};
    to->is_final = true;
  }
  return kFine;
}

}  // namespace

extern "C" {

// Executions that were asked for, the engine of the last one, plans that were
// held, uses that the real library would refuse, and objects that were made and
// not destroyed.
int millrace_fake_cudnn_executions() { return executions; }
int millrace_fake_cudnn_engine() { return last_engine; }
int millrace_fake_cudnn_held() { return held; }
int millrace_fake_cudnn_wrong() { return WrongUses(); }
int millrace_fake_cudnn_alive() { return Alive() + NumHandles(); }

size_t cudnnGetVersion() {
  const char* text = std::getenv("MILLRACE_FAKE_CUDNN_VERSION");
  return text == nullptr ? 91002 : static_cast<size_t>(std::atoll(text));
}
const char* cudnnGetErrorString(int status) {
  return status == kNotInitialized    ? "CUDNN_STATUS_NOT_INITIALIZED"
         : status == kExecutionFailed ? "CUDNN_STATUS_EXECUTION_FAILED"
         : status >= kNotSupported    ? "CUDNN_STATUS_NOT_SUPPORTED"
                                      : "CUDNN_STATUS_BAD_PARAM";
}

int cudnnCreate(void** handle) {
  if (Told("create")) return kNotInitialized;
  *handle = NewHandle();
  return kFine;
}
int cudnnDestroy(void* handle) {
  return DeleteHandle(handle) ? kFine : Wrong(kBadParam, "destroying a handle");
}
int cudnnSetStream(void* handle, void*) {
  if (!IsHandle(handle)) return Wrong(kBadParam, "a stream of no handle");
  const Use use(handle, Use::For::kStream);
  return use.is_alone() ? kFine : TwoThreads();
}

int cudnnBackendCreateDescriptor(int kind, void** made) {
  return Create(kind, made);
}
int cudnnBackendDestroyDescriptor(void* made) { return Destroy(made); }
int cudnnBackendFinalize(void* made) { return Finalize(made, Support); }
int cudnnBackendSetAttribute(void* made, int name, int type, int64_t count,
                             const void* values) {
  return Set(made, name, type, count, values);
}

int cudnnBackendGetAttribute(void* made, int name, int type, int64_t most,
                             int64_t* count, void* values) {
  const Descriptor* d = Find(made);
  if (d == nullptr) return Wrong(kBadParam, "asking what is no descriptor");
  if (!d->is_final) return Wrong(kNotFinalized, "asking what is not final");
  if (!IsReadable(d->kind, name, type)) {
    return Wrong(kWrongType, "asking for what it has not");
  }
  switch (name) {
    case 202:
      return Results(*d, most, count, values);
    case 300: {
      Descriptor* to = Place(values, 0, 2);
      if (most != 1 || to == nullptr) return NoPlace();
      to->engine = d->engine;
      to->work = d->work;
      to->is_final = true;
      *count = 1;
      return kFine;
    }
    case 302:
      *count = static_cast<int64_t>(d->knobs.size());
      for (int64_t i = 0; i < std::min(*count, most); ++i) {
        Descriptor* to = Place(values, i, 7);
        if (to == nullptr) return NoPlace();
        to->knobs = {d->knobs[static_cast<size_t>(i)]};
        to->is_final = true;
      }
      return kFine;
    case 402:
      return Answer({WorkspaceOf(d->engine)}, true, most, count, values);
    case 600:
      return Answer({d->knobs[0].first}, false, most, count, values);
    case 601:
      return Answer({d->knobs[0].second}, true, most, count, values);
    case 1301:
      return Answer({d->engine}, true, most, count, values);
    case 1303:
      return Answer(NumericalNotes(d->engine), false, most, count, values);
    case 1305:
      return Answer(BehaviorNotes(d->engine), false, most, count, values);
    default:
      return Wrong(kNotSupported, "an attribute that cannot be read");
  }
}

int cudnnBackendExecute(void* handle, void* plan_made, void* pack_made) {
  const Descriptor* plan = Find(plan_made);
  const Descriptor* pack = Find(pack_made);
  if (!IsHandle(handle) || plan == nullptr || pack == nullptr ||
      plan->kind != 5 || pack->kind != 16) {
    return Wrong(kBadParam, "what is executed");
  }
  if (!plan->is_final || !pack->is_final) {
    return Wrong(kNotFinalized, "executing what is not final");
  }
  if (plan->pointers.at(400)[0] != handle) {
    return Wrong(kBadParam, "a plan of another handle");
  }
  const Use use(handle, Use::For::kExecution);
  if (!use.is_alone()) return TwoThreads();
  Places places;
  const Sizes& ids = pack->ints.at(1000);
  for (size_t i = 0; i < ids.size(); ++i) {
    places[ids[i]] = pack->pointers.at(1001)[i];
  }
  if (places.size() != plan->work->tensors.size()) {
    return Wrong(kBadParam, "a pointer for each tensor");
  }
  for (const auto& [id, tensor] : plan->work->tensors) {
    if (!places.contains(id) || places[id] == nullptr) {
      return Wrong(kNullPointer, "a tensor without a pointer");
    }
    if (reinterpret_cast<uintptr_t>(places[id]) %
            static_cast<uintptr_t>(tensor.alignment) !=
        0) {
      return Wrong(kMisaligned, "a tensor's pointer");
    }
  }
  const int64_t needed = WorkspaceOf(plan->engine);
  void* const workspace = pack->pointers.at(1003)[0];
  if (needed > 0 && workspace == nullptr) {
    return Wrong(kNullPointer, "no workspace");
  }
  const int number = ++executions;
  last_engine = static_cast<int>(plan->engine);
  if (Told("execute:" + std::to_string(number))) return kExecutionFailed;
  const bool uneven = plan->engine == 0 || Told("all_uneven") ||
                      (plan->engine == 5 && Told("uneven"));
  const bool nan = plan->engine == 5 && Told("nan");
  Do([work = plan->work, engine = plan->engine, uneven, nan, places, workspace,
      needed] {
    // It holds nothing from one call to the next.
    if (needed > 0) {
      std::memset(workspace, 0xff, static_cast<size_t>(needed));
    }
    Compute(*work, engine, uneven, nan, places);
  });
  return kFine;
}

}  // extern "C"
