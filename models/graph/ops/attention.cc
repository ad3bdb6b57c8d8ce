// Attention as ONNX defines it (opset 25), of which PyTorch's
// scaled_dot_product_attention is the form with four dimensions and no cache:
//
//   y = softmax(softcap(scale * q·kᵀ) + bias)·v
//
// bias is made of an optional mask (BOOL: true is seen; floats: added), the
// causal rule and the window. Causal: query i sees keys up to i plus what the
// cache holds. Query heads share key heads in order when there are fewer. A
// query that sees no key has a row of zeros, in PyTorch (2.5 and later) as in
// ONNX. Scores, softmax and sums are in f32, of doubles in f64, whatever
// softmax_precision says.
#include "models/graph/ops/attention.h"

#include <cmath>

#include "models/graph/ops/gemm/gemm.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 3, 7));
  RETURN_IF_ERROR(FloatOperand(call, 0, "query"));
  RETURN_IF_ERROR(SameType(call, 1, "key"));
  RETURN_IF_ERROR(SameType(call, 2, "value"));
  ASSIGN_OR_RETURN(const AttentionPlan plan, PlanAttention(call));
  const DType dtype = call.arg(0).dtype;
  const auto& q = plan.q;
  const Shape out = q.packed ? Shape{q.batch, q.tokens, q.heads * plan.v.dim}
                             : Shape{q.batch, q.heads, q.tokens, plan.v.dim};
  ASSIGN_OR_RETURN(const Shape checked, Shape::Checked(out.dims()));
  return Outputs(call,
                 {{dtype, checked},
                  {dtype, {q.batch, plan.k.heads, plan.total, plan.k.dim}},
                  {dtype, {q.batch, plan.v.heads, plan.total, plan.v.dim}},
                  {dtype, {q.batch, q.heads, q.tokens, plan.total}}});
}

// Scores of a block of queries against all keys, and what the fourth output
// asks to see of them.
template <typename T>
class Block {
  using M = MathType<T>;

 public:
  static constexpr int64_t kRows = 64;

  Block(const Call& call, const AttentionPlan& plan,
        std::span<const Result> results)
      : call_(call),
        plan_(plan),
        bias_of_(call, plan),
        results_(results),
        mode_(call.attrs().Int("qk_matmul_output_mode", 0)),
        q_(Scratch<M>(kRows * plan.q.dim)),
        scores_(Scratch<M>(kRows * plan.total)),
        bias_(Scratch<M>(plan.total)),
        out_(Scratch<M>(kRows * plan.v.dim)) {}

  void Run(int64_t b, int64_t h, int64_t first, int64_t rows) {
    const int64_t kv = h / (plan_.q.heads / plan_.k.heads);
    const int64_t d = plan_.q.dim;
    const T* q = call_.arg(0).data<T>() + plan_.q.At(b, h);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t p = 0; p < d; ++p) {
        q_[static_cast<size_t>(i * d + p)] =
            M(q[(first + i) * plan_.q.row() + p]) * static_cast<M>(plan_.scale);
      }
    }
    const int64_t past = plan_.past_k.tokens;
    Product(rows, past, d, q_.get(), d,
            Turned(call_.arg(4), plan_.past_k, b, kv), scores_.get(),
            plan_.total, false);
    Product(rows, plan_.k.tokens, d, q_.get(), d,
            Turned(call_.arg(1), plan_.k, b, kv), scores_.get() + past,
            plan_.total, false);
    for (int64_t i = 0; i < rows; ++i) Soften(b, h, first + i, i);
    const int64_t dv = plan_.v.dim;
    Product(rows, dv, past, scores_.get(), plan_.total,
            Upright(call_.arg(5), plan_.past_v, b, kv), out_.get(), dv, false);
    Product(rows, dv, plan_.v.tokens, scores_.get() + past, plan_.total,
            Upright(call_.arg(2), plan_.v, b, kv), out_.get(), dv, true);
    Heads y = plan_.q;
    y.dim = dv;
    T* to = results_[0].data<T>() + y.At(b, h) + first * y.row();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t p = 0; p < dv; ++p) {
        to[i * y.row() + p] =
            static_cast<T>(out_[static_cast<size_t>(i * dv + p)]);
      }
    }
  }

 private:
  static Matrix<T> Upright(const Arg& arg, const Heads& heads, int64_t b,
                           int64_t h) {
    if (heads.tokens == 0) return {};
    return {arg.data<T>() + heads.At(b, h), heads.row(), 1};
  }
  static Matrix<T> Turned(const Arg& arg, const Heads& heads, int64_t b,
                          int64_t h) {
    const Matrix<T> m = Upright(arg, heads, b, h);
    return {m.data, m.col, m.row};
  }

  static void Product(int64_t m, int64_t n, int64_t k, const M* a, int64_t lda,
                      const Matrix<T>& b, M* c, int64_t ldc, bool add) {
    if (n == 0) return;
    Gemm<M>(
        {m, n, k}, a, lda,
        [&](int64_t k0, int64_t kc, int64_t n0, int64_t width, int64_t cols,
            M* panel) {
          PackPanel<M>(b, k0, kc, n0, width, cols, panel,
                       [](T v) { return static_cast<M>(v); });
        },
        c, ldc, add);
  }

  void Show(int64_t mode, int64_t b, int64_t h, int64_t i, const M* row) {
    if (results_.size() < 4 || mode != mode_) return;
    T* to = results_[3].data<T>() +
            ((b * plan_.q.heads + h) * plan_.q.tokens + i) * plan_.total;
    for (int64_t j = 0; j < plan_.total; ++j) to[j] = static_cast<T>(row[j]);
  }

  // Scores of one query become the weights of the values.
  void Soften(int64_t b, int64_t h, int64_t i, int64_t block_row) {
    const int64_t n = plan_.total;
    M* row = scores_.get() + block_row * n;
    Show(0, b, h, i, row);
    if (plan_.softcap > 0) {
      const auto cap = static_cast<M>(plan_.softcap);
      for (int64_t j = 0; j < n; ++j) row[j] = cap * std::tanh(row[j] / cap);
    }
    Show(1, b, h, i, row);
    const bool seen = bias_of_.Fill(b, h, i, bias_.get());
    for (int64_t j = 0; j < n; ++j) row[j] += bias_[static_cast<size_t>(j)];
    Show(2, b, h, i, row);
    if (seen) {
      const M max = *std::max_element(row, row + n);
      M sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += row[j] = std::exp(row[j] - max);
      for (int64_t j = 0; j < n; ++j) row[j] /= sum;
    } else {
      std::fill_n(row, n, M(0));
    }
    Show(3, b, h, i, row);
  }

  const Call& call_;
  const AttentionPlan& plan_;
  const AttentionBias bias_of_;
  const std::span<const Result> results_;
  const int64_t mode_;
  const std::unique_ptr<M[]> q_;
  const std::unique_ptr<M[]> scores_;
  const std::unique_ptr<M[]> bias_;
  const std::unique_ptr<M[]> out_;
};

// Past and new rows of one head, behind one another.
template <typename T>
void Present(const Arg& past, const Heads& past_heads, const Arg& now,
             const Heads& heads, int64_t b, int64_t h, const Result& result) {
  const int64_t total = past_heads.tokens + heads.tokens;
  T* to = result.data<T>() + (b * heads.heads + h) * total * heads.dim;
  if (past_heads.tokens > 0) {
    to = std::copy_n(past.data<T>() + past_heads.At(b, h),
                     past_heads.tokens * heads.dim, to);
  }
  const T* from = now.data<T>() + heads.At(b, h);
  for (int64_t i = 0; i < heads.tokens; ++i) {
    to = std::copy_n(from + i * heads.row(), heads.dim, to);
  }
}

Status Run(const Call& call, std::span<const Result> results,
           const Team& team) {
  ASSIGN_OR_RETURN(const AttentionPlan plan, PlanAttention(call));
  DispatchFloat(call.arg(0).dtype, [&]<typename T>() {
    const auto [copy, copied] = team.Share(plan.k.batch * plan.k.heads);
    for (int64_t i = copy; i < copied; ++i) {
      const int64_t b = i / plan.k.heads;
      const int64_t h = i % plan.k.heads;
      if (results.size() > 1) {
        Present<T>(call.arg(4), plan.past_k, call.arg(1), plan.k, b, h,
                   results[1]);
      }
      if (results.size() > 2) {
        Present<T>(call.arg(5), plan.past_v, call.arg(2), plan.v, b, h,
                   results[2]);
      }
    }
    const int64_t blocks =
        (plan.q.tokens + Block<T>::kRows - 1) / Block<T>::kRows;
    const auto [begin, end] = team.Share(plan.q.batch * plan.q.heads * blocks);
    if (begin >= end) return;
    Block<T> block(call, plan, results);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / blocks;
      const int64_t first = i % blocks * Block<T>::kRows;
      block.Run(head / plan.q.heads, head % plan.q.heads, first,
                std::min(Block<T>::kRows, plan.q.tokens - first));
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"Attention",
     Infer,
     Run,
     Work::kSplits,
     {.has_bf16_products = true, .layout = LayoutRule::kAttention}},
};

}  // namespace

std::span<const OpDef> AttentionOps() { return kOps; }

}  // namespace millrace::models::graph
