// What LSTM, GRU and RNN share: their operands, the order of their steps, and
// the products with the recurrent weights. A cell says what one step does with
// the gates.
//
//   x                 [seq, batch, input]; [batch, seq, input] with layout 1
//   w, r              [directions, gates * hidden, input or hidden]
//   bias              [directions, 2 * gates * hidden] or left out
//   sequence_lens     [batch] INT32 or left out
//   initial_h         [directions, batch, hidden]; with layout 1 batch first
//   y                 [seq, directions, batch, hidden]; layout 1: [batch, seq,
//                     directions, hidden]
//
// Sums are taken in f32, of doubles in f64; states stay in that type between
// steps. Behind a row's length y is 0, and the last state is that at its end.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "models/graph/op.h"
#include "models/graph/ops/gemm/gemm.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {

struct RnnActivation {
  enum class Kind : uint8_t {
    kTanh,
    kSigmoid,
    kRelu,
    kAffine,
    kLeakyRelu,
    kThresholdedRelu,
    kScaledTanh,
    kHardSigmoid,
    kElu,
    kSoftsign,
    kSoftplus
  };
  Kind kind = Kind::kTanh;
  double alpha = 0;
  double beta = 0;

  template <typename M>
  M operator()(M x) const;
};

struct RnnPlan {
  int64_t gates = 0;
  int64_t seq = 0;
  int64_t batch = 0;
  int64_t input = 0;
  int64_t hidden = 0;
  int64_t directions = 1;
  bool reverse = false;  // of direction 0
  bool batch_first = false;
  double clip = 0;                         // 0: none
  std::vector<RnnActivation> activations;  // of each direction in turn

  bool IsReverse(int64_t direction) const { return reverse || direction == 1; }
  // Elements before [direction, row] of a state.
  int64_t StateAt(int64_t direction, int64_t row) const {
    return (batch_first ? row * directions + direction
                        : direction * batch + row) *
           hidden;
  }
  int64_t YAt(int64_t step, int64_t direction, int64_t row) const {
    return (batch_first ? (row * seq + step) * directions + direction
                        : (step * directions + direction) * batch + row) *
           hidden;
  }
};

// `defaults` are the activations of one direction. Operands beyond initial_h
// are the caller's to check.
StatusOr<RnnPlan> PlanRnn(const Call& call, int64_t gates,
                          const std::vector<std::string>& defaults);
// Types of y, y_h and, when there are two states, y_c.
Types RnnTypes(const Call& call, const RnnPlan& plan, bool two_states);
// The length of each row; OUT_OF_RANGE when one does not lie in [0, seq].
StatusOr<std::vector<int64_t>> RnnLengths(const Call& call,
                                          const RnnPlan& plan);

// The recurrent weights of some gates of one direction, packed once for all
// steps.
template <typename M>
class RecurrentWeights {
 public:
  // r is [num_gates * hidden, hidden].
  template <typename T>
  RecurrentWeights(const T* r, int64_t num_outputs, int64_t hidden)
      : n_(num_outputs), k_(hidden) {
    const int64_t cols = PanelColumns<M>();
    panels_ = Scratch<M>((n_ + cols - 1) / cols * cols * k_);
    for (int64_t j = 0; j < n_; j += cols) {
      PackPanel<M>(Matrix<T>{r, 1, k_}, 0, k_, j, std::min(cols, n_ - j), cols,
                   panels_.get() + j * k_,
                   [](T v) { return static_cast<M>(v); });
    }
  }
  // out += h·rᵀ, or out = h·rᵀ
  void Apply(int64_t rows, const M* h, M* out, int64_t ld_out, bool add) const {
    GemmPanels<M>(rows, n_, k_, h, k_, panels_.get(), out, ld_out, add);
  }

 private:
  int64_t n_;
  int64_t k_;
  std::unique_ptr<M[]> panels_;
};

// Runs this member's rows through all steps. make_cell(direction) gives an
// object whose Step(row_first, rows, gates, h, c) turns the gates' input
// parts, [rows, gates * hidden], and the states into new states in place of
// `h` and `c`; gate_bias(direction) is what is added to the input parts.
// c_first: the index of operand initial_c, 0 for none.
template <typename T, typename GateBias, typename MakeCell>
void RunRnn(const Call& call, const RnnPlan& plan,
            const std::vector<int64_t>& lengths,
            std::span<const Result> results, const Team& team, size_t c_first,
            GateBias&& gate_bias, MakeCell&& make_cell) {
  using M = MathType<T>;
  const int64_t h = plan.hidden;
  const int64_t gates = plan.gates * h;
  const auto [begin, end] = team.Share(plan.directions * plan.batch);
  for (int64_t unit = begin; unit < end;) {
    const int64_t dir = unit / plan.batch;
    const int64_t row0 = unit % plan.batch;
    const int64_t rows = std::min(plan.batch - row0, end - unit);
    unit += rows;
    const auto at = [](int64_t i) { return static_cast<size_t>(i); };
    // The input's part of all gates of all steps is one product.
    std::vector<M> x(at(plan.seq * rows * plan.input));
    for (int64_t t = 0; t < plan.seq; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = plan.batch_first ? (row0 + r) * plan.seq + t
                                             : t * plan.batch + row0 + r;
        const T* from = call.arg(0).data<T>() + row * plan.input;
        std::copy_n(from, plan.input, x.begin() + (t * rows + r) * plan.input);
      }
    }
    std::vector<M> inputs(at(plan.seq * rows * gates));
    const Matrix<T> w{call.arg(1).data<T>() + dir * gates * plan.input, 1,
                      plan.input};
    Gemm<M>(
        {plan.seq * rows, gates, plan.input}, x.data(), plan.input,
        [&](int64_t k0, int64_t kc, int64_t n0, int64_t width, int64_t cols,
            M* panel) {
          PackPanel<M>(w, k0, kc, n0, width, cols, panel,
                       [](T v) { return static_cast<M>(v); });
        },
        inputs.data(), gates);
    const std::vector<M> bias = gate_bias(dir);
    auto cell = make_cell(dir);
    std::vector<M> state(at(2 * rows * h));  // h, then c
    std::vector<M> next;
    std::vector<M> step(at(rows * gates));
    const auto initial = [&](size_t operand, M* to) {
      if (operand == 0 || !call.arg(operand).given) return;
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(call.arg(operand).data<T>() + plan.StateAt(dir, row0 + r),
                    h, to + r * h);
      }
    };
    initial(5, state.data());
    initial(c_first, state.data() + rows * h);
    for (int64_t s = 0; s < plan.seq; ++s) {
      // Where row r stands at this step.
      const auto time = [&](int64_t r) {
        return plan.IsReverse(dir) ? lengths[at(row0 + r)] - 1 - s : s;
      };
      const auto active = [&](int64_t r) { return s < lengths[at(row0 + r)]; };
      std::fill(step.begin(), step.end(), M(0));
      for (int64_t r = 0; r < rows; ++r) {
        if (!active(r)) continue;
        const M* from = inputs.data() + (time(r) * rows + r) * gates;
        for (int64_t j = 0; j < gates; ++j) {
          step[at(r * gates + j)] =
              from[j] + (bias.empty() ? M(0) : bias[at(j)]);
        }
      }
      next = state;
      cell.Step(rows, step.data(), next.data(), next.data() + rows * h);
      for (int64_t r = 0; r < rows; ++r) {
        if (!active(r)) continue;
        for (int64_t part = 0; part < 2; ++part) {
          const int64_t from = (part * rows + r) * h;
          std::copy_n(next.begin() + from, h, state.begin() + from);
        }
        if (results.empty()) continue;
        T* y = results[0].template data<T>() + plan.YAt(time(r), dir, row0 + r);
        for (int64_t j = 0; j < h; ++j) {
          y[j] = static_cast<T>(state[at(r * h + j)]);
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = lengths[at(row0 + r)]; t < plan.seq; ++t) {
        std::fill_n(results[0].template data<T>() + plan.YAt(t, dir, row0 + r),
                    h, T(M(0)));
      }
      for (size_t part = 0; part < 2 && part + 1 < results.size(); ++part) {
        T* to =
            results[part + 1].template data<T>() + plan.StateAt(dir, row0 + r);
        for (int64_t j = 0; j < h; ++j) {
          to[j] = static_cast<T>(
              state[at((static_cast<int64_t>(part) * rows + r) * h + j)]);
        }
      }
    }
  }
}

// The sum of the input's and the recurrent bias of one direction; empty when
// there is none.
template <typename T>
std::vector<MathType<T>> SumOfBiases(const Call& call, const RnnPlan& plan,
                                     int64_t direction) {
  std::vector<MathType<T>> sum;
  if (!call.arg(3).given) return sum;
  const int64_t n = plan.gates * plan.hidden;
  const T* bias = call.arg(3).data<T>() + direction * 2 * n;
  for (int64_t i = 0; i < n; ++i) {
    sum.push_back(MathType<T>(bias[i]) + MathType<T>(bias[n + i]));
  }
  return sum;
}

template <typename M>
M RnnActivation::operator()(M x) const {
  const auto a = static_cast<M>(alpha);
  const auto b = static_cast<M>(beta);
  switch (kind) {
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kSigmoid:
      return M(1) / (M(1) + std::exp(-x));
    case Kind::kRelu:
      return x > 0 ? x : M(0);
    case Kind::kAffine:
      return a * x + b;
    case Kind::kLeakyRelu:
      return x < 0 ? a * x : x;
    case Kind::kThresholdedRelu:
      return x > a ? x : M(0);
    case Kind::kScaledTanh:
      return a * std::tanh(b * x);
    case Kind::kHardSigmoid:
      return std::clamp(a * x + b, M(0), M(1));
    case Kind::kElu:
      return x < 0 ? a * std::expm1(x) : x;
    case Kind::kSoftsign:
      return x / (M(1) + std::abs(x));
    case Kind::kSoftplus:
      break;
  }
  return std::max(x, M(0)) + std::log1p(std::exp(-std::abs(x)));
}

}  // namespace millrace::models::graph
