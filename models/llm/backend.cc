// Matching of shapes, the same for every backend. Sizes came from a file that
// was checked when it was read, so a mismatch here is a recipe's mistake.
#include "models/llm/backend.h"

#include <utility>

namespace millrace::models {
namespace {

int64_t QkvRows(const BackendShape& shape) {
  return int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
}

}  // namespace

const Linear* Backend::AddLinear(const WeightRows& rows, Rounding rounding) {
  CHECK(rows.num_rows > 0 && rows.k > 0, "a matrix needs rows");
  return DoAddLinear(rows, rounding);
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
  return DoAddGateUp(gate, up, rounding);
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

void Backend::Embed(const Linear& table, float scale) {
  CHECK(table.inputs() == shape_.hidden && table.outputs() == shape_.vocab,
        "the embedding is [vocab][hidden]");
  DoEmbed(table, scale);
}

void Backend::NormLinear(Vector norm, const Linear& qkv) {
  CHECK(static_cast<int32_t>(norm.size()) == shape_.hidden, "norm of x");
  CHECK(qkv.inputs() == shape_.hidden && qkv.outputs() == QkvRows(shape_),
        "q, k and v together");
  DoNormLinear(norm, qkv);
}

void Backend::RopeWriteKv(int32_t layer, const RopeOptions& options) {
  CHECK(layer >= 0 && layer < shape_.layers, "a layer of the model");
  CHECK(options.rope >= 0 &&
            options.rope < static_cast<int32_t>(shape_.ropes.size()),
        "a table of the model");
  for (const Vector norm : {options.q_norm, options.k_norm}) {
    CHECK(norm.size() == options.q_norm.size() &&
              (norm.empty() ||
               static_cast<int32_t>(norm.size()) == shape_.head_dim),
          "norms of a head of q and of k, or none");
  }
  DoRopeWriteKv(layer, options);
}

void Backend::Attend(int32_t layer, const AttendOptions& options) {
  CHECK(layer >= 0 && layer < shape_.layers, "a layer of the model");
  CHECK(options.window >= 0 && options.softcap >= 0, "sizes, or none");
  DoAttend(layer, options);
}

void Backend::KeepSampleRows() { DoKeepSampleRows(); }

void Backend::LinearResidual(Branch branch, const Linear& w, Vector post_norm) {
  const int64_t inputs = branch == Branch::kAttention
                             ? int64_t{shape_.heads} * shape_.head_dim
                             : shape_.ffn;
  CHECK(w.inputs() == inputs && w.outputs() == shape_.hidden,
        "a projection back to x");
  CHECK(post_norm.empty() ||
            static_cast<int32_t>(post_norm.size()) == shape_.hidden,
        "norm of a row, or none");
  DoLinearResidual(branch, w, post_norm);
}

void Backend::NormGateUpAct(Vector norm, const Linear& gate_up,
                            Activation activation) {
  CHECK(static_cast<int32_t>(norm.size()) == shape_.hidden, "norm of x");
  CHECK(gate_up.inputs() == shape_.hidden &&
            gate_up.outputs() == 2 * int64_t{shape_.ffn},
        "gate and up together");
  DoNormGateUpAct(norm, gate_up, activation);
}

void Backend::Head(Vector norm, const Linear& w, float softcap) {
  CHECK(static_cast<int32_t>(norm.size()) == shape_.hidden, "norm of x");
  CHECK(w.inputs() == shape_.hidden && w.outputs() == shape_.vocab,
        "the head is [vocab][hidden]");
  CHECK(softcap >= 0, "a cap, or none");
  DoHead(norm, w, softcap);
}

}  // namespace millrace::models
