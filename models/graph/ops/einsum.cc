// Einsum: operands are contracted from left to right, each pair as one stack
// of matrix products. Floats of 16 and 32 bits are summed in f32, doubles in
// f64, integers wrap around.
#include <algorithm>
#include <numeric>

#include "models/graph/ops/einsum_equation.h"
#include "models/graph/ops/gemm/gemm.h"
#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

Types Infer(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 64));
  for (size_t i = 0; i < call.args.size(); ++i) {
    RETURN_IF_ERROR(SameType(call, i, "an operand"));
    if (!call.arg(i).given) return InvalidArgument("an operand is missing");
  }
  if (call.arg(0).dtype == DType::kBool) {
    return InvalidArgument("there are no sums of BOOL");
  }
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(call));
  std::vector<int64_t> dims;
  for (const char label : equation.output) {
    dims.push_back(equation.sizes.at(label));
  }
  ASSIGN_OR_RETURN(const Shape out, Shape::Checked(dims));
  return Outputs(call, {{call.arg(0).dtype, out}});
}

// A dense tensor whose dimensions have labels, each once.
template <typename M>
struct Term {
  std::string labels;
  std::vector<int64_t> sizes;
  std::vector<M> values;

  int64_t Size(char label) const {
    const size_t at = labels.find(label);
    return at == labels.npos ? 1 : sizes[at];
  }
};

bool Has(std::string_view labels, char label) {
  return labels.find(label) != labels.npos;
}

// Visits all indices of `sizes`; body(i, offset) with the offset by `strides`.
template <typename Body>
void Walk(const std::vector<int64_t>& sizes,
          const std::vector<int64_t>& strides, Body&& body) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  std::vector<int64_t> index(sizes.size());
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    body(i, offset);
    for (size_t d = sizes.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < sizes[d]) break;
      offset -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

// The operand with each label once: repeated ones read the diagonal, and what
// is 1 here but more elsewhere is left out, which repeats it.
template <typename M, typename T>
Term<M> Load(const Arg& arg, const std::string& labels,
             const Equation& equation) {
  Term<M> term;
  std::vector<int64_t> strides;
  const Shape own = arg.shape.Strides();
  for (int d = 0; d < arg.shape.rank(); ++d) {
    const char label = labels[static_cast<size_t>(d)];
    if (arg.shape[d] != equation.sizes.at(label)) continue;
    const size_t at = term.labels.find(label);
    if (at != term.labels.npos) {
      strides[at] += own[d];
      continue;
    }
    term.labels += label;
    term.sizes.push_back(arg.shape[d]);
    strides.push_back(own[d]);
  }
  const T* x = arg.data<T>();
  Walk(term.sizes, strides, [&](int64_t, int64_t offset) {
    term.values.push_back(Convert<M>(x[offset]));
  });
  return term;
}

// In the order of `labels`; those that are not among them are summed.
template <typename M>
Term<M> Arrange(const Term<M>& term, const std::string& labels) {
  Term<M> out;
  out.labels = labels;
  int64_t count = 1;
  for (const char label : labels) {
    out.sizes.push_back(term.Size(label));
    count *= out.sizes.back();
  }
  out.values.assign(static_cast<size_t>(count), M(0));
  std::vector<int64_t> strides;
  for (const char label : term.labels) {
    int64_t stride = 0;
    if (const size_t at = labels.find(label); at != labels.npos) {
      stride =
          std::accumulate(out.sizes.begin() + static_cast<int64_t>(at) + 1,
                          out.sizes.end(), int64_t{1}, std::multiplies<>());
    }
    strides.push_back(stride);
  }
  Walk(term.sizes, strides, [&](int64_t i, int64_t offset) {
    out.values[static_cast<size_t>(offset)] +=
        term.values[static_cast<size_t>(i)];
  });
  return out;
}

template <typename M>
Term<M> Contract(const Term<M>& left, const Term<M>& right,
                 const std::string& keep) {
  std::string batch, rows, cols, inner;
  for (const char label : left.labels) {
    const bool shared = Has(right.labels, label);
    if (Has(keep, label)) {
      (shared ? batch : rows) += label;
    } else if (shared) {
      inner += label;
    }
  }
  for (const char label : right.labels) {
    if (!Has(left.labels, label) && Has(keep, label)) cols += label;
  }
  const Term<M> a = Arrange(left, batch + rows + inner);
  const Term<M> b = Arrange(right, batch + inner + cols);
  const auto count = [](const Term<M>& term, const std::string& labels) {
    int64_t product = 1;
    for (const char label : labels) product *= term.Size(label);
    return product;
  };
  const int64_t m = count(a, rows);
  const int64_t n = count(b, cols);
  const int64_t k = count(a, inner);
  Term<M> out;
  out.labels = batch + rows + cols;
  for (const char label : out.labels) {
    out.sizes.push_back(Has(a.labels, label) ? a.Size(label) : b.Size(label));
  }
  const int64_t stack = count(a, batch);
  out.values.resize(static_cast<size_t>(stack * m * n));
  for (int64_t i = 0; i < stack && m * n > 0; ++i) {
    const Matrix<M> matrix{b.values.data() + i * k * n, n, 1};
    Gemm<M>(
        {m, n, k}, a.values.data() + i * m * k, k,
        [&](int64_t k0, int64_t kc, int64_t n0, int64_t width,
            int64_t panel_cols, M* panel) {
          PackPanel<M>(matrix, k0, kc, n0, width, panel_cols, panel,
                       [](M v) { return v; });
        },
        out.values.data() + i * m * n, n);
  }
  return out;
}

Status Run(const Call& call, std::span<const Result> results, const Team&) {
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(call));
  Dispatch(call.arg(0).dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      using M = Accumulator<T>;
      Term<M> term = Load<M, T>(call.arg(0), equation.inputs[0], equation);
      for (size_t i = 1; i < call.args.size(); ++i) {
        std::string keep = equation.output;
        for (size_t j = i + 1; j < call.args.size(); ++j) {
          keep += equation.inputs[j];
        }
        term = Contract(
            term, Load<M, T>(call.arg(i), equation.inputs[i], equation), keep);
      }
      term = Arrange(term, equation.output);
      std::transform(term.values.begin(), term.values.end(),
                     results[0].data<T>(),
                     [](M v) { return static_cast<T>(v); });
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {{"Einsum", Infer, Run}};

}  // namespace

std::span<const OpDef> EinsumOps() { return kOps; }

}  // namespace millrace::models::graph
