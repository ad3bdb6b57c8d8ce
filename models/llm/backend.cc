// Matching of shapes, the same for every backend. Sizes came from a file that
// was checked when it was read, so a mismatch here is a recipe's mistake.
#include "models/llm/backend.h"

#include <algorithm>
#include <utility>

namespace millrace::models {
namespace {

int64_t QkvRows(const BackendShape& shape) {
  return int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
}

// A norm of rows of n values, or none.
bool Fits(const Norm& norm, int32_t n) {
  return (norm.weight.empty() ||
          static_cast<int32_t>(norm.weight.size()) == n) &&
         (norm.bias.empty() || norm.bias.size() == norm.weight.size());
}

}  // namespace

LogitRange LogitsOf(int64_t vocab, int32_t rank, int32_t size) {
  const int64_t groups = (vocab + kLogitGroup - 1) / kLogitGroup;
  return {.begin = std::min(groups * rank / size * kLogitGroup, vocab),
          .end = std::min(groups * (rank + 1) / size * kLogitGroup, vocab)};
}

const Linear* Backend::AddLinear(const WeightRows& rows, Rounding rounding,
                                 std::vector<float> bias) {
  CHECK(rows.num_rows > 0 && rows.k > 0, "a matrix needs rows");
  CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == rows.num_rows,
        "one bias for each output");
  return DoAddLinear(rows, rounding, std::move(bias));
}

const Linear* Backend::AddQkv(const WeightRows& q, const WeightRows& k,
                              const WeightRows& v, std::vector<float> bias_qkv,
                              Rounding rounding) {
  CHECK(q.num_rows == int64_t{shape_.heads} * shape_.head_dim, "rows of q");
  CHECK(k.num_rows == int64_t{shape_.kv_heads} * shape_.head_dim, "rows of k");
  CHECK(v.num_rows == k.num_rows, "v has as many rows as k");
  CHECK(q.k == shape_.hidden && k.k == q.k && v.k == q.k,
        "q, k and v read the hidden row");
  CHECK(bias_qkv.empty() ||
            static_cast<int64_t>(bias_qkv.size()) == QkvRows(shape_),
        "one bias for each output of q, k and v");
  return DoAddQkv(q, k, v, std::move(bias_qkv), rounding);
}

const Linear* Backend::AddGateUp(const WeightRows& gate, const WeightRows& up,
                                 Rounding rounding) {
  CHECK(gate.num_rows == shape_.ffn && up.num_rows == shape_.ffn,
        "gate and up have ffn rows");
  CHECK(gate.k == shape_.hidden && up.k == shape_.hidden,
        "gate and up read the hidden row");
  return DoAddGateUp(gate, up, rounding, {}, {});
}

const Linear* Backend::AddUp(const WeightRows& up, std::vector<float> bias,
                             Rounding rounding) {
  CHECK(up.num_rows == shape_.ffn && up.k == shape_.hidden,
        "up has ffn rows and reads the hidden row");
  CHECK(bias.empty() || static_cast<int32_t>(bias.size()) == shape_.ffn,
        "one bias for each output");
  return DoAddUp(up, std::move(bias), rounding);
}

Expert Backend::AddExpert(const WeightRows& gate, const WeightRows& up,
                          const WeightRows& down, Rounding rounding_gate_up,
                          Rounding rounding_down, ExpertBiases biases) {
  CHECK(gate.num_rows == up.num_rows && gate.num_rows == down.k &&
            gate.num_rows <= shape_.expert_ffn,
        "gate, up and down of one size");
  CHECK(gate.k == shape_.hidden && up.k == shape_.hidden &&
            down.num_rows == shape_.hidden,
        "an expert reads and writes the hidden row");
  const size_t ffn = biases.gate.size();
  CHECK(ffn == biases.up.size() &&
            (ffn == 0 ? biases.down.empty()
                      : static_cast<int64_t>(ffn) == gate.num_rows &&
                            static_cast<int64_t>(biases.down.size()) ==
                                down.num_rows),
        "one bias for each output of gate, up and down");
  return {.gate_up =
              DoAddGateUp(gate, up, rounding_gate_up, biases.gate, biases.up),
          .down = DoAddLinear(down, rounding_down, std::move(biases.down))};
}

const Linear* Backend::AddRouter(const WeightRows& router,
                                 const WeightRows& last,
                                 std::vector<float> bias) {
  CHECK(router.k == shape_.hidden &&
            (last.num_rows == 0 || last.k == shape_.hidden),
        "a router reads the hidden row");
  CHECK(bias.empty() || static_cast<int64_t>(bias.size()) ==
                            router.num_rows + last.num_rows,
        "one bias for each expert");
  return DoAddRouter(router, last, std::move(bias));
}

Backend::Vector Backend::AddVector(const WeightRows& row, float offset) {
  std::vector<float>& out =
      vectors_.emplace_back(static_cast<size_t>(row.num_rows * row.k));
  for (int64_t i = 0; i < row.num_rows; ++i) {
    CHECK(DequantizeRow(row.type, row.data + i * row.row_bytes, row.k,
                        out.data() + i * row.k),
          "vectors have a served type");
  }
  if (offset != 0) {
    for (float& value : out) value += offset;
  }
  return out;  // moving the outer vector leaves the floats where they are
}

void Backend::Embed(const Linear& table, const EmbedOptions& options) {
  CHECK(table.inputs() == shape_.hidden && table.outputs() == shape_.vocab,
        "the embedding is [vocab][hidden]");
  CHECK(options.positions == nullptr ||
            options.positions->inputs() == shape_.hidden,
        "positions are [context][hidden]");
  DoEmbed(table, options);
}

void Backend::NormLinear(const Norm& norm, const Linear& qkv) {
  CHECK(Fits(norm, shape_.hidden), "norm of x");
  CHECK(qkv.inputs() == shape_.hidden && qkv.outputs() == QkvRows(shape_),
        "q, k and v together");
  DoNormLinear(norm, qkv);
}

void Backend::RopeWriteKv(int32_t layer, const RopeOptions& options) {
  CHECK(layer >= 0 && layer < shape_.layers, "a layer of the model");
  CHECK(options.rope < static_cast<int32_t>(shape_.ropes.size()),
        "a table of the model");
  const auto q = static_cast<int32_t>(options.q_norm.size());
  const auto k = static_cast<int32_t>(options.k_norm.size());
  CHECK((q == 0 && k == 0) || (q == shape_.head_dim && k == shape_.head_dim) ||
            (q == shape_.heads * shape_.head_dim &&
             k == shape_.kv_heads * shape_.head_dim),
        "norms of a head of q and of k, of all heads, or none");
  DoRopeWriteKv(layer, options);
}

void Backend::Attend(int32_t layer, const AttendOptions& options) {
  CHECK(layer >= 0 && layer < shape_.layers, "a layer of the model");
  CHECK(options.window >= 0 && options.softcap >= 0, "sizes, or none");
  CHECK(!options.chunked || options.window > 0, "chunks have a size");
  CHECK(options.sinks.empty() ||
            static_cast<int32_t>(options.sinks.size()) == shape_.heads,
        "one sink for each head");
  DoAttend(layer, options);
}

void Backend::KeepSampleRows() { DoKeepSampleRows(); }

void Backend::LinearResidual(Branch branch, const Linear& w,
                             const ResidualOptions& options) {
  const int64_t inputs = branch == Branch::kAttention
                             ? int64_t{shape_.heads} * shape_.head_dim
                             : shape_.ffn;
  CHECK(w.inputs() == inputs && w.outputs() == shape_.hidden,
        "a projection back to x");
  CHECK(Fits(options.post_norm, shape_.hidden), "norm of a row, or none");
  CHECK(!options.waits ||
            (branch == Branch::kAttention && options.post_norm.weight.empty()),
        "only plain attention branches wait");
  DoLinearResidual(branch, w, options);
}

void Backend::NormGateUpAct(const Norm& norm, const Linear& gate_up,
                            Activation activation) {
  CHECK(Fits(norm, shape_.hidden), "norm of x");
  CHECK(gate_up.inputs() == shape_.hidden &&
            (gate_up.outputs() == 2 * int64_t{shape_.ffn} ||
             gate_up.outputs() == shape_.ffn),
        "gate and up together, or up alone");
  CHECK(activation != Activation::kClampedSwiglu, "of experts only");
  DoNormGateUpAct(norm, gate_up, activation);
}

void Backend::NormExperts(const Norm& norm, const ExpertsOptions& experts,
                          const ResidualOptions& options) {
  CHECK(Fits(norm, shape_.hidden) && Fits(options.post_norm, shape_.hidden),
        "norms of x and of a branch");
  const auto count = static_cast<int64_t>(experts.experts.size());
  const bool gateless = experts.shared && !experts.shared_gate;
  CHECK(experts.router != nullptr &&
            experts.router->outputs() == count - (gateless ? 1 : 0),
        "one output of the router for each expert that needs one");
  CHECK(experts.used >= 1 && experts.used + (experts.shared ? 1 : 0) <= count &&
            experts.used + (experts.shared ? 1 : 0) <= shape_.experts_used,
        "a row uses some of the experts");
  DoNormExperts(norm, experts, options);
}

void Backend::HiddenRows(const Norm& norm) {
  CHECK(Fits(norm, shape_.hidden), "norm of x");
  CHECK(shape_.hidden_rows, "a shape of hidden rows");
  DoHiddenRows(norm);
}

void Backend::Head(const Norm& norm, const Linear& w,
                   const HeadOptions& options) {
  CHECK(Fits(norm, shape_.hidden), "norm of x");
  CHECK(w.inputs() == shape_.hidden && (w.outputs() == shape_.vocab ||
                                        w.outputs() == shape_.logits.count()),
        "the head is [vocab][hidden], or a rank's part of it");
  CHECK(!shape_.hidden_rows, "a shape of logits");
  CHECK(options.softcap >= 0, "a cap, or none");
  DoHead(norm, w, options);
}

}  // namespace millrace::models
