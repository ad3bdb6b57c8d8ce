// RNN, GRU and LSTM, as ONNX defines them: see rnn.h for operands and steps.
#include "models/graph/ops/rnn.h"

#include "models/graph/ops/op_groups.h"

namespace millrace::models::graph {
namespace {

// One direction's weights and functions, and what clips their arguments.
template <typename M>
struct CellBase {
  template <typename T>
  CellBase(const Call& call, const RnnPlan& p, int64_t direction, size_t count,
           const T*)
      : plan(p),
        f(p.activations.data() + static_cast<size_t>(direction) * count),
        hidden(p.hidden),
        n(p.gates * p.hidden) {
    (void)call;
  }
  M Clip(M x) const {
    const auto limit = static_cast<M>(plan.clip);
    return limit > 0 ? std::clamp(x, -limit, limit) : x;
  }
  const RnnPlan& plan;
  const RnnActivation* f;
  int64_t hidden;
  int64_t n;
};

template <typename T>
const T* RecurrentOf(const Call& call, const RnnPlan& plan, int64_t direction) {
  return call.arg(2).data<T>() +
         direction * plan.gates * plan.hidden * plan.hidden;
}

// h = f(gate + h·rᵀ)
template <typename M>
struct RnnCell : CellBase<M> {
  template <typename T>
  RnnCell(const Call& call, const RnnPlan& p, int64_t direction, const T* type)
      : CellBase<M>(call, p, direction, 1, type),
        r(RecurrentOf<T>(call, p, direction), this->n, p.hidden) {}

  void Step(int64_t rows, M* gates, M* h, M*) const {
    r.Apply(rows, h, gates, this->n, true);
    for (int64_t i = 0; i < rows * this->hidden; ++i) {
      h[i] = this->f[0](this->Clip(gates[i]));
    }
  }
  RecurrentWeights<M> r;
};

// Gates z, r, h: h' = (1 - z) * g(…) + z * h. The reset r multiplies the state
// before its product, or the product (and its bias) with linear_before_reset.
template <typename M>
struct GruCell : CellBase<M> {
  template <typename T>
  GruCell(const Call& call, const RnnPlan& p, int64_t direction, const T* type)
      : CellBase<M>(call, p, direction, 2, type),
        linear_first(call.attrs().Int("linear_before_reset", 0) != 0),
        zr(RecurrentOf<T>(call, p, direction), 2 * p.hidden, p.hidden),
        candidate(RecurrentOf<T>(call, p, direction) + 2 * p.hidden * p.hidden,
                  p.hidden, p.hidden) {
    if (linear_first && call.arg(3).given) {
      const T* b = call.arg(3).data<T>() + (direction * 6 + 5) * p.hidden;
      bias.assign(b, b + p.hidden);
    }
  }

  void Step(int64_t rows, M* gates, M* h, M* product) const {
    const int64_t d = this->hidden;
    zr.Apply(rows, h, gates, this->n, true);
    for (int64_t i = 0; i < rows; ++i) {
      M* g = gates + i * this->n;
      for (int64_t j = 0; j < 2 * d; ++j) g[j] = this->f[0](this->Clip(g[j]));
    }
    if (linear_first) {
      candidate.Apply(rows, h, product, d, false);
    } else {
      for (int64_t i = 0; i < rows * d; ++i) {
        product[i] = h[i] * gates[i / d * this->n + d + i % d];
      }
      candidate.Apply(rows, product, gates + 2 * d, this->n, true);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const M* g = gates + i * this->n;
      for (int64_t j = 0; j < d; ++j) {
        M sum = g[2 * d + j];
        if (linear_first) {
          const M add = bias.empty() ? M(0) : bias[static_cast<size_t>(j)];
          sum += g[d + j] * (product[i * d + j] + add);
        }
        const M fresh = this->f[1](this->Clip(sum));
        h[i * d + j] = (M(1) - g[j]) * fresh + g[j] * h[i * d + j];
      }
    }
  }
  bool linear_first;
  RecurrentWeights<M> zr;
  RecurrentWeights<M> candidate;
  std::vector<M> bias;  // of the candidate's product
};

// Gates i, o, f, c (in this order); peepholes i, o, f.
template <typename M>
struct LstmCell : CellBase<M> {
  template <typename T>
  LstmCell(const Call& call, const RnnPlan& p, int64_t direction, const T* type)
      : CellBase<M>(call, p, direction, 3, type),
        coupled(call.attrs().Int("input_forget", 0) != 0),
        r(RecurrentOf<T>(call, p, direction), this->n, p.hidden),
        peep(static_cast<size_t>(3 * p.hidden)) {
    if (call.arg(7).given) {
      std::copy_n(call.arg(7).data<T>() + direction * 3 * p.hidden,
                  3 * p.hidden, peep.begin());
    }
  }

  void Step(int64_t rows, M* gates, M* h, M* c) const {
    const int64_t d = this->hidden;
    r.Apply(rows, h, gates, this->n, true);
    const auto* f = this->f;
    for (int64_t i = 0; i < rows; ++i) {
      const M* g = gates + i * this->n;
      for (int64_t j = 0; j < d; ++j) {
        const auto p = [&](int64_t gate) {
          return peep[static_cast<size_t>(gate * d + j)];
        };
        M& cell = c[i * d + j];
        const M in = f[0](this->Clip(g[j] + p(0) * cell));
        const M forget =
            coupled ? M(1) - in : f[0](this->Clip(g[2 * d + j] + p(2) * cell));
        cell = forget * cell + in * f[1](this->Clip(g[3 * d + j]));
        const M out = f[0](this->Clip(g[d + j] + p(1) * cell));
        h[i * d + j] = out * f[2](cell);
      }
    }
  }
  bool coupled;
  RecurrentWeights<M> r;
  std::vector<M> peep;
};

StatusOr<RnnPlan> PlanOf(const Call& call) {
  if (call.node.Is("LSTM")) {
    ASSIGN_OR_RETURN(const RnnPlan plan,
                     PlanRnn(call, 4, {"Sigmoid", "Tanh", "Tanh"}));
    RETURN_IF_ERROR(ShapeIs(
        call, 6,
        plan.batch_first ? Shape{plan.batch, plan.directions, plan.hidden}
                         : Shape{plan.directions, plan.batch, plan.hidden},
        "initial_c"));
    RETURN_IF_ERROR(
        ShapeIs(call, 7, {plan.directions, 3 * plan.hidden}, "the peepholes"));
    return plan;
  }
  RETURN_IF_ERROR(CountOperands(call, 3, 6));
  if (call.node.Is("GRU")) return PlanRnn(call, 3, {"Sigmoid", "Tanh"});
  return PlanRnn(call, 1, {"Tanh"});
}

Types Infer(const Call& call) {
  ASSIGN_OR_RETURN(const RnnPlan plan, PlanOf(call));
  return RnnTypes(call, plan, call.node.Is("LSTM"));
}

template <template <typename> typename Cell>
Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const RnnPlan plan, PlanOf(call));
  ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, RnnLengths(call, plan));
  const bool lstm = call.node.Is("LSTM");
  const bool keeps_bias =
      call.node.Is("GRU") && call.attrs().Int("linear_before_reset", 0) != 0;
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    using M = MathType<T>;
    RunRnn<T>(
        call, plan, lengths, results, team, lstm ? 6 : 0,
        [&](int64_t direction) {
          std::vector<M> bias = SumOfBiases<T>(call, plan, direction);
          if (keeps_bias && !bias.empty()) {
            // The candidate's recurrent bias is added before the reset.
            const T* b = call.arg(3).data<T>() + direction * 6 * plan.hidden;
            for (int64_t i = 2 * plan.hidden; i < 3 * plan.hidden; ++i) {
              bias[static_cast<size_t>(i)] = b[i];
            }
          }
          return bias;
        },
        [&](int64_t direction) {
          return Cell<M>(call, plan, direction, static_cast<const T*>(nullptr));
        });
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"RNN", Infer, Run<RnnCell>, Work::kSplits},
    {"GRU", Infer, Run<GruCell>, Work::kSplits, {.has_bf16_products = true}},
    {"LSTM", Infer, Run<LstmCell>, Work::kSplits, {.has_bf16_products = true}},
};

}  // namespace

std::span<const OpDef> RnnOps() { return kOps; }

}  // namespace millrace::models::graph
