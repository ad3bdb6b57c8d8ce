// LSTM, GRU and RNN of PyTorch as one ONNX operator a layer. Gates come in
// another order, biases in one list, and directions along an axis of their own.
#include <algorithm>
#include <utility>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

struct Cell {
  const char* op;
  std::vector<size_t> gates;  // PyTorch's place of each of ONNX's gates
  Attrs attrs;
};

// The blocks of a weight [gates·hidden, …] in ONNX's order.
ValueId Reordered(Emitter& e, ValueId weight,
                  const std::vector<size_t>& order) {
  if (order.size() == 1) return weight;
  const auto count = static_cast<int64_t>(order.size());
  const auto blocks =
      e.Ops("Split", {weight}, {{"axis", int64_t{0}}, {"num_outputs", count}},
            order.size());
  std::vector<ValueId> parts;
  for (const size_t gate : order) parts.push_back(blocks[gate]);
  return e.Concat(std::move(parts), 0);
}

// Several of one shape along a new first axis.
ValueId Stacked(Emitter& e, std::vector<ValueId> parts) {
  for (ValueId& part : parts) part = e.Unsqueeze(part, {0});
  return e.Concat(std::move(parts), 0);
}

// An LSTM whose state h = W_hr·z is a projection of what its cell gives out, z.
// ONNX has none, but W_hh·h = (W_hh·W_hr)·z: all but the first state are those
// of an LSTM without projection. What the first one adds to the first step
// comes as columns of the operand:
//
//   step          0    1    2   …       weights
//   operand       x₀   x₁   x₂          W_ih
//                 h₀   0    0           W_hh
void ProjectedLstm(Lowering& n, const Cell& cell) {
  const Operand input = n.Arg("input");
  const std::vector<Operand> states = n.Args("hx");
  const std::vector<Operand> params = n.Args("params");
  const bool has_biases = n.Flag("has_biases", true);
  const bool batch_first = n.Flag("batch_first", false);
  const int64_t layers = n.Int("num_layers", 1);
  const int64_t directions = n.Flag("bidirectional", false) ? 2 : 1;
  const int64_t each = has_biases ? 5 : 3;
  Emitter& e = n.emit();
  ValueId x = batch_first ? e.Transpose(input.id, {1, 0, 2}) : input.id;
  const Num more =
      e.Sub(n.Size(input, batch_first ? 1 : 0), Num::Of(1));  // steps
  std::vector<ValueId> last_h;
  std::vector<ValueId> last_c;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<ValueId> results;
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t place = layer * directions + d;
      const auto at = static_cast<size_t>(place * each);
      const Operand& projection = params[at + static_cast<size_t>(each) - 1];
      if (projection.rank() != 2 || !projection.meta->sizes[1].fixed) {
        return n.Fail("a projection that is no matrix");
      }
      const auto state = [&](size_t i) {
        return e.Slice(states[i].id, 0, Num::Of(place), Num::Of(place + 1),
                       Num::Of(1));
      };
      const Num zero = Num::Of(0);
      const ValueId first =
          e.Op("Pad", {state(0), e.List({d == 0 ? zero : more, zero, zero,
                                         d == 0 ? more : zero, zero, zero})});
      const ValueId w_hh = Reordered(e, params[at + 1].id, cell.gates);
      const ValueId w =
          e.Concat({Reordered(e, params[at].id, cell.gates), w_hh}, 1);
      ValueId b = kNoValue;
      if (has_biases) {
        b = e.Unsqueeze(e.Concat({Reordered(e, params[at + 2].id, cell.gates),
                                  Reordered(e, params[at + 3].id, cell.gates)},
                                 0),
                        {0});
      }
      const auto y =
          e.Ops(cell.op,
                {e.Concat({x, first}, 2), e.Unsqueeze(w, {0}),
                 e.Unsqueeze(e.Op("MatMul", {w_hh, projection.id}), {0}), b,
                 kNoValue, kNoValue, state(1)},
                {{"hidden_size", projection.meta->sizes[1].hint},
                 {"direction", std::string(d == 0 ? "forward" : "reverse")}},
                3);
      const ValueId down = e.Transpose(projection.id, {1, 0});
      results.push_back(e.Op("MatMul", {e.Squeeze(y[0], {1}), down}));
      last_h.push_back(e.Op("MatMul", {y[1], down}));
      last_c.push_back(y[2]);
    }
    x = directions == 1 ? results[0] : e.Concat(std::move(results), 2);
  }
  n.Return(0, batch_first ? e.Transpose(x, {1, 0, 2}) : x);
  n.Return(1, e.Concat(std::move(last_h), 0));
  n.Return(2, e.Concat(std::move(last_c), 0));
}

void Recurrent(Lowering& n, const Cell& cell, bool is_lstm) {
  const Operand input = n.Arg("input");
  const std::vector<Operand> states =
      is_lstm ? n.Args("hx") : std::vector<Operand>{n.Arg("hx")};
  const std::vector<Operand> params = n.Args("params");
  const bool has_biases = n.Flag("has_biases", true);
  const bool batch_first = n.Flag("batch_first", false);
  const int64_t layers = n.Int("num_layers", 1);
  const int64_t directions = n.Flag("bidirectional", false) ? 2 : 1;
  const int64_t each = has_biases ? 4 : 2;
  if (n.Flag("train", false) && n.Real("dropout", 0) != 0) {
    return n.Fail("recurrent layers with dropout of training");
  }
  const auto expected = static_cast<size_t>(is_lstm ? 2 : 1);
  const auto holds_all = [](const std::vector<Operand>& list) {
    return std::all_of(list.begin(), list.end(),
                       [](const Operand& x) { return bool{x}; });
  };
  const bool fits = layers >= 1 && layers <= 64 && input.rank() == 3 &&
                    states.size() == expected && holds_all(states) &&
                    holds_all(params);
  if (fits && is_lstm &&
      params.size() == static_cast<size_t>(layers * directions * (each + 1))) {
    return ProjectedLstm(n, cell);
  }
  if (!fits ||
      params.size() != static_cast<size_t>(layers * directions * each)) {
    return n.Fail(
        "recurrent layers of this form (packed sequences or inputs without a "
        "batch)");
  }
  Emitter& e = n.emit();
  const Num hidden = n.Size(states[0], 2);
  ValueId x = batch_first ? e.Transpose(input.id, {1, 0, 2}) : input.id;
  std::vector<ValueId> last_h;
  std::vector<ValueId> last_c;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<ValueId> w, r, b;
    for (int64_t d = 0; d < directions; ++d) {
      const auto at = static_cast<size_t>((layer * directions + d) * each);
      w.push_back(Reordered(e, params[at].id, cell.gates));
      r.push_back(Reordered(e, params[at + 1].id, cell.gates));
      if (!has_biases) continue;
      b.push_back(e.Concat({Reordered(e, params[at + 2].id, cell.gates),
                            Reordered(e, params[at + 3].id, cell.gates)},
                           0));
    }
    const auto state = [&](size_t i) {
      return e.Slice(states[i].id, 0, Num::Of(layer * directions),
                     Num::Of((layer + 1) * directions), Num::Of(1));
    };
    std::vector<ValueId> operands = {x,
                                     Stacked(e, w),
                                     Stacked(e, r),
                                     has_biases ? Stacked(e, b) : kNoValue,
                                     kNoValue,
                                     state(0)};
    if (is_lstm) operands.push_back(state(1));
    Attrs attrs = cell.attrs;
    if (hidden.known()) attrs.Set("hidden_size", hidden.integer);
    attrs.Set("direction",
              std::string(directions == 2 ? "bidirectional" : "forward"));
    const auto y =
        e.Ops(cell.op, std::move(operands), std::move(attrs), is_lstm ? 3 : 2);
    // [steps, directions, batch, hidden] → [steps, batch, directions·hidden]
    x = directions == 1 ? e.Squeeze(y[0], {1})
                        : e.Reshape(e.Transpose(y[0], {0, 2, 1, 3}),
                                    {e.SizeOf(y[0], 0), e.SizeOf(y[0], 2),
                                     e.Mul(hidden, Num::Of(2))});
    last_h.push_back(y[1]);
    if (is_lstm) last_c.push_back(y[2]);
  }
  n.Return(0, batch_first ? e.Transpose(x, {1, 0, 2}) : x);
  n.Return(1, e.Concat(std::move(last_h), 0));
  if (is_lstm) n.Return(2, e.Concat(std::move(last_c), 0));
}

void Lstm(Lowering& n) {
  // PyTorch: input, forget, cell, output; ONNX: input, output, forget, cell.
  Recurrent(n, {.op = "LSTM", .gates = {0, 3, 1, 2}, .attrs = {}}, true);
}
void Gru(Lowering& n) {
  // PyTorch: reset, update, new; ONNX: update, reset, hidden.
  Recurrent(n,
            {.op = "GRU",
             .gates = {1, 0, 2},
             .attrs = {{"linear_before_reset", int64_t{1}}}},
            false);
}
void Rnn(Lowering& n, const char* activation) {
  const int64_t directions = n.Flag("bidirectional", false) ? 2 : 1;
  Recurrent(n,
            {.op = "RNN",
             .gates = {0},
             .attrs = {{"activations",
                        std::vector<std::string>(
                            static_cast<size_t>(directions), activation)}}},
            false);
}
void RnnTanh(Lowering& n) { Rnn(n, "Tanh"); }
void RnnRelu(Lowering& n) { Rnn(n, "Relu"); }

constexpr AtenOp kRows[] = {
    {"aten.lstm.input", Lstm},
    {"aten.gru.input", Gru},
    {"aten.rnn_tanh.input", RnnTanh},
    {"aten.rnn_relu.input", RnnRelu},
};

}  // namespace

std::span<const AtenOp> RecurrentRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
