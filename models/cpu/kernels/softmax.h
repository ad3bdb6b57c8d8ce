// The softmax of one row over the keys of a split that it sees, for any vector
// width; V is what kernels/attention.h says. Anonymous namespace: every
// instruction set compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/cpu/llm_kernels.h"

namespace millrace::models {
namespace {

template <class V>
class SoftmaxRows {
 public:
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;

  static int32_t Hidden(const AttendArgs& args, int32_t row) {
    return args.hidden != nullptr ? args.hidden[row] : 0;
  }
  // cap * tanh(s / cap), from key `k` on; what is not seen may become anything.
  static void SoftCap(float* s, float cap, int32_t k, int32_t visible) {
    const F one = V::Set(1.0f);
    const F two = V::Set(2.0f);
    for (; k < visible; k += kLanes) {
      const F e = V::Exp(V::Mul(V::Load(s + k), V::Set(2.0f / cap)));
      const F t = V::Sub(one, V::Div(two, V::Add(e, one)));
      V::Store(s + k, V::Mul(t, V::Set(cap)));
    }
  }

  // Lanes of the vector at key k that the row does not see become `x`.
  static F OnlySeen(F v, F x, int32_t k, int32_t hidden, int32_t visible) {
    if (k + kLanes > visible) v = V::Keep(V::First(visible - k), v, x);
    if (k < hidden) v = V::Keep(V::First(hidden - k), x, v);
    return v;
  }

  // Scores of a row to exp(score - max) in place; its m and l. Keys beyond
  // hidden…visible hold garbage.
  static void Softmax(const AttendArgs& args, int32_t row, float* p) {
    const int32_t hidden = Hidden(args, row);
    const int32_t visible = args.visible[row];
    // Whole vectors are [begin, end); one before and one after may be cut.
    const int32_t begin = (hidden + kLanes - 1) / kLanes * kLanes;
    const int32_t end = visible / kLanes * kLanes;
    const int32_t first = hidden / kLanes * kLanes;
    if (args.softcap > 0) SoftCap(p, args.softcap, first, visible);
    const F lowest = V::Set(-__builtin_inff());
    F m0 = lowest;
    F m1 = lowest;
    const auto cut_max = [&](int32_t k) {
      m1 = V::Max(OnlySeen(V::Load(p + k), lowest, k, hidden, visible), m1);
    };
    if (first < begin) cut_max(first);
    int32_t k = begin;
    for (; k + 2 * kLanes <= end; k += 2 * kLanes) {
      m0 = V::Max(V::Load(p + k), m0);
      m1 = V::Max(V::Load(p + k + kLanes), m1);
    }
    if (k < end) m0 = V::Max(V::Load(p + k), m0);
    if (end < visible && end >= begin) cut_max(end);
    args.m[row] = V::GreatestLane(V::Max(m0, m1));
    const F m = V::Set(args.m[row]);
    typename V::Sums l = V::NoSums();
    const auto cut_exp = [&](int32_t at) {
      const F e = OnlySeen(V::Exp(V::Sub(V::Load(p + at), m)), V::Zero(), at,
                           hidden, visible);
      l = V::AddLanes(l, e);
      V::Store(p + at, e);
    };
    if (first < begin) cut_exp(first);
    for (k = begin; k < end; k += kLanes) {
      const F e = V::Exp(V::Sub(V::Load(p + k), m));
      l = V::AddLanes(l, e);
      V::Store(p + k, e);
    }
    if (end < visible && end >= begin) cut_exp(end);
    args.l[row] = V::SumOf(l);
  }
};

}  // namespace
}  // namespace millrace::models
