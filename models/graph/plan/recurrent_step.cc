// LSTM and GRU of the usual functions. Rows depend on no other rows and
// directions on no other direction, so members share these and never meet; a
// member takes some rows of one direction through all steps, then the next
// ones:
//
//   parts [seq, rows, gates] = x · Wᵀ + bias        one product
//   each step:  gates = h · Rᵀ + parts[step];  h, c = cell(gates)
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/ops/rnn.h"
#include "models/graph/plan/makers.h"

namespace millrace::models::graph {
namespace {

// Rows that go through the steps together: what lies between is small.
constexpr int64_t kRows = 16;

struct Weights {
  const float* w = nullptr;       // packed, of both directions in turn
  const float* r = nullptr;       // packed
  const float* bias = nullptr;    // [directions][gates * hidden] of x
  const float* r_bias = nullptr;  // the same of h, where it stands apart
};

class RecurrentStep : public Step {
 public:
  RecurrentStep(const Node& node, const LowerContext& context,
                const RnnPlan& plan, const Weights& weights)
      : dense_(context.dense),
        products_(context.products(node)),
        num_members_(context.num_members),
        lstm_(node.Is("LSTM")),
        plan_(plan),
        weights_(weights),
        n_(plan.gates * plan.hidden),
        panels_((n_ + products_.panel - 1) / products_.panel),
        rows_(std::min(kRows, plan.batch)) {
    const auto slot = [&](const std::vector<ValueId>& ids, size_t i) {
      return i < ids.size() ? context.slot(ids[i]) : kNoSlot;
    };
    x_ = slot(node.inputs, 0);
    initial_[0] = slot(node.inputs, 5);
    initial_[1] = lstm_ ? slot(node.inputs, 6) : kNoSlot;
    for (size_t i = 0; i < 3; ++i) results_[i] = slot(node.outputs, i);
  }

  int64_t scratch_bytes() const override {
    return num_members_ * MemberFloats() * 4;
  }

  Status Run(const Slots& slots, const Team& team) const override {
    float* scratch =
        reinterpret_cast<float*>(slots.scratch) + team.index * MemberFloats();
    const auto [begin, end] = team.Share(plan_.directions * plan_.batch);
    for (int64_t at = begin; at < end;) {
      const int64_t direction = at / plan_.batch;
      const int64_t row = at % plan_.batch;
      const int64_t rows = std::min({rows_, plan_.batch - row, end - at});
      Rows(slots, direction, row, rows, scratch);
      at += rows;
    }
    return OkStatus();
  }

  Factors factors() const override { return FactorsOf(products_); }
  double macs() const override {
    return static_cast<double>(plan_.directions * plan_.seq * plan_.batch) *
           static_cast<double>(n_ * (plan_.input + plan_.hidden));
  }

  std::string Text() const override {
    return std::string(lstm_ ? "LSTM " : "GRU ") + std::to_string(plan_.seq) +
           " steps of " + std::to_string(plan_.batch) + " x " +
           std::to_string(plan_.input) + " -> " +
           std::to_string(plan_.directions) + " x " +
           std::to_string(plan_.hidden);
  }

 private:
  int64_t MemberFloats() const { return OwnFloats() + ProductFloats(); }
  int64_t OwnFloats() const {
    return ((plan_.seq + 1) * rows_ * n_ + 2 * rows_ * plan_.hidden + 15) / 16 *
           16;
  }
  // Of the largest product.
  int64_t ProductFloats() const {
    const GemmArgs largest{.row_end = std::max(rows_, plan_.seq),
                           .k = std::max(plan_.input, plan_.hidden)};
    return (products_.gemm_scratch_floats(largest) + 15) / 16 * 16;
  }
  const float* Of(const float* all, int64_t direction, int64_t each) const {
    return all != nullptr ? all + direction * each : nullptr;
  }

  // All steps of some rows of one direction.
  void Rows(const Slots& slots, int64_t direction, int64_t row, int64_t rows,
            float* scratch) const {
    const int64_t d = plan_.hidden;
    float* parts = scratch;
    float* gates = parts + plan_.seq * rows_ * n_;
    float* h = gates + rows_ * n_;
    float* c = h + rows_ * d;
    float* product = scratch + OwnFloats();
    InputParts(slots, direction, row, rows, parts, product);
    Begin(slots, 0, direction, row, rows, h);
    Begin(slots, 1, direction, row, rows, c);
    float* y =
        results_[0] != kNoSlot ? slots.data<float>(results_[0]) : nullptr;
    for (int64_t step = 0; step < plan_.seq; ++step) {
      const int64_t t =
          plan_.IsReverse(direction) ? plan_.seq - 1 - step : step;
      const float* part = parts + t * rows * n_;
      products_.gemm(
          {.x = h,
           .ld_x = d,
           .row_end = rows,
           .w = weights_.r + direction * products_.packed_floats(n_, d),
           .n = n_,
           .k = d,
           .panel_end = panels_,
           .y = gates,
           .ld_y = n_,
           .epilogue = {.bias = Of(weights_.r_bias, direction, n_),
                        .residual = lstm_ ? part : nullptr,
                        .ld_residual = n_},
           .scratch = product});
      for (int64_t i = 0; i < rows; ++i) {
        if (lstm_) {
          dense_.lstm(gates + i * n_, d, c + i * d, h + i * d);
        } else {
          dense_.gru(part + i * n_, gates + i * n_, d, h + i * d);
        }
        if (y != nullptr) {
          std::copy_n(h + i * d, d, y + plan_.YAt(t, direction, row + i));
        }
      }
    }
    Finish(slots, 1, direction, row, rows, h);
    Finish(slots, 2, direction, row, rows, c);
  }

  // parts [seq, rows, gates]. With few rows the steps of each are one product,
  // with many the rows of each step.
  void InputParts(const Slots& slots, int64_t direction, int64_t row,
                  int64_t rows, float* parts, float* product) const {
    const int64_t k = plan_.input;
    GemmArgs args{.w = weights_.w + direction * products_.packed_floats(n_, k),
                  .n = n_,
                  .k = k,
                  .panel_end = panels_,
                  .epilogue = {.bias = Of(weights_.bias, direction, n_)},
                  .scratch = product};
    const float* x = slots.data<float>(x_);
    const int64_t step = plan_.batch_first ? k : plan_.batch * k;
    const int64_t next_row = plan_.batch_first ? plan_.seq * k : k;
    x += row * next_row;
    if (rows < plan_.seq) {
      args.ld_x = step;
      args.ld_y = rows * n_;
      args.row_end = plan_.seq;
      for (int64_t i = 0; i < rows; ++i) {
        args.x = x + i * next_row;
        args.y = parts + i * n_;
        products_.gemm(args);
      }
      return;
    }
    args.ld_x = next_row;
    args.ld_y = n_;
    args.row_end = rows;
    for (int64_t t = 0; t < plan_.seq; ++t) {
      args.x = x + t * step;
      args.y = parts + t * rows * n_;
      products_.gemm(args);
    }
  }

  void Begin(const Slots& slots, size_t state, int64_t direction, int64_t row,
             int64_t rows, float* to) const {
    const int64_t d = plan_.hidden;
    if (initial_[state] == kNoSlot) {
      std::fill_n(to, rows * d, 0.0f);
      return;
    }
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(slots.data<float>(initial_[state]) +
                      plan_.StateAt(direction, row + i),
                  d, to + i * d);
    }
  }

  void Finish(const Slots& slots, size_t result, int64_t direction, int64_t row,
              int64_t rows, const float* from) const {
    const int64_t d = plan_.hidden;
    if (results_[result] == kNoSlot) return;
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(from + i * d, d,
                  slots.data<float>(results_[result]) +
                      plan_.StateAt(direction, row + i));
    }
  }

  const DenseTable& dense_;
  const DenseProducts& products_;
  const int64_t num_members_;
  const bool lstm_;
  const RnnPlan plan_;
  const Weights weights_;
  const int64_t n_;
  const int64_t panels_;
  const int64_t rows_;
  Slot x_ = kNoSlot;
  Slot initial_[2] = {kNoSlot, kNoSlot};  // h, c
  Slot results_[3] = {kNoSlot, kNoSlot, kNoSlot};
};

// Whether the cell is what the kernels compute: FP32, constant weights, the
// default functions, all rows of full length.
bool Fits(const Node& node, const LowerContext& context, const RnnPlan& plan) {
  const auto given = [&](size_t i) {
    return node.inputs.size() > i && node.inputs[i] != kNoValue;
  };
  if (context.type(node.inputs[0]).dtype != DType::kF32 || plan.clip != 0 ||
      given(4) || given(7) || node.attrs.Int("input_forget", 0) != 0) {
    return false;
  }
  if (node.Is("GRU") && node.attrs.Int("linear_before_reset", 0) == 0) {
    return false;
  }
  for (size_t i = 1; i <= 3; ++i) {
    if (given(i) && context.constant(node.inputs[i]) == nullptr) return false;
  }
  const size_t count =
      plan.activations.size() / static_cast<size_t>(plan.directions);
  for (size_t i = 0; i < plan.activations.size(); ++i) {
    const auto want = i % count == 0 ? RnnActivation::Kind::kSigmoid
                                     : RnnActivation::Kind::kTanh;
    if (plan.activations[i].kind != want) return false;
  }
  return true;
}

StatusOr<const float*> Pack(const Node& node, const LowerContext& context,
                            size_t operand, int64_t n, int64_t k,
                            int64_t directions) {
  const auto& weight = context.graph.value(node.inputs[operand]).constant;
  const DenseProducts& products = context.products(node);
  const int64_t each = products.packed_floats(n, k);
  return context.packed.Get(
      weight, context.form(node, PackedForm::Kind::kRecurrent),
      directions * each, [&](const Tensor& from, float* to) {
        for (int64_t i = 0; i < directions; ++i) {
          products.pack(from.data<float>() + i * n * k, n, k, {.n = k, .k = 1},
                        0, (n + products.panel - 1) / products.panel,
                        to + i * each);
        }
        return OkStatus();
      });
}

// The biases of x and h, [directions][2][n], are added at once; a GRU's last
// gate takes its own of h before it is reset.
Status PackBiases(const Node& node, const LowerContext& context,
                  const RnnPlan& plan, Weights& weights) {
  if (node.inputs.size() <= 3 || node.inputs[3] == kNoValue) return OkStatus();
  const auto& bias = context.graph.value(node.inputs[3]).constant;
  const int64_t n = plan.gates * plan.hidden;
  const int64_t joined = node.Is("LSTM") ? n : n - plan.hidden;
  const auto fill = [&](const Tensor& both, float* to, bool of_h) {
    for (int64_t i = 0; i < plan.directions * n; ++i) {
      const float* from = both.data<float>() + i / n * 2 * n + i % n;
      if (i % n < joined) {
        to[i] = of_h ? 0.0f : from[0] + from[n];
      } else {
        to[i] = of_h ? from[n] : from[0];
      }
    }
    return OkStatus();
  };
  const std::vector<int64_t> sizes = {n, joined};
  const int64_t size = plan.directions * n;
  ASSIGN_OR_RETURN(weights.bias,
                   context.packed.Get(bias, {PackedForm::Kind::kBiasOfX, sizes},
                                      size, [&](const Tensor& both, float* to) {
                                        return fill(both, to, false);
                                      }));
  if (joined == n) return OkStatus();
  ASSIGN_OR_RETURN(weights.r_bias,
                   context.packed.Get(bias, {PackedForm::Kind::kBiasOfH, sizes},
                                      size, [&](const Tensor& both, float* to) {
                                        return fill(both, to, true);
                                      }));
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Step>> MakeRecurrentStep(const Node& node,
                                                  const LowerContext& context) {
  std::vector<Arg> args;
  for (const ValueId id : node.inputs) {
    Arg& arg = args.emplace_back();
    if (id != kNoValue) {
      arg = {true, context.type(id).dtype, context.shape(id), nullptr};
    }
  }
  const bool lstm = node.Is("LSTM");
  ASSIGN_OR_RETURN(
      const RnnPlan plan,
      PlanRnn({node, args}, lstm ? 4 : 3,
              lstm ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                   : std::vector<std::string>{"Sigmoid", "Tanh"}));
  if (!Fits(node, context, plan)) return std::unique_ptr<Step>();
  const int64_t n = plan.gates * plan.hidden;
  Weights weights;
  ASSIGN_OR_RETURN(weights.w,
                   Pack(node, context, 1, n, plan.input, plan.directions));
  ASSIGN_OR_RETURN(weights.r,
                   Pack(node, context, 2, n, plan.hidden, plan.directions));
  RETURN_IF_ERROR(PackBiases(node, context, plan, weights));
  return std::unique_ptr<Step>(
      std::make_unique<RecurrentStep>(node, context, plan, weights));
}

}  // namespace millrace::models::graph
