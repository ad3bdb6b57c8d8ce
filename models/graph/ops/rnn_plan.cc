#include <cctype>

#include "models/graph/ops/rnn.h"

namespace millrace::models::graph {
namespace {

struct ActivationRow {
  std::string_view name;  // in lower case
  RnnActivation::Kind kind;
  double alpha;
  double beta;
  int parameters;  // how many of alpha and beta it has
};

using Kind = RnnActivation::Kind;
constexpr ActivationRow kActivations[] = {
    {"tanh", Kind::kTanh, 0, 0, 0},
    {"sigmoid", Kind::kSigmoid, 0, 0, 0},
    {"relu", Kind::kRelu, 0, 0, 0},
    {"affine", Kind::kAffine, 1, 0, 2},
    {"leakyrelu", Kind::kLeakyRelu, 0.01, 0, 1},
    {"thresholdedrelu", Kind::kThresholdedRelu, 1, 0, 1},
    {"scaledtanh", Kind::kScaledTanh, 1, 1, 2},
    {"hardsigmoid", Kind::kHardSigmoid, 0.2, 0.5, 2},
    {"elu", Kind::kElu, 1, 0, 1},
    {"softsign", Kind::kSoftsign, 0, 0, 0},
    {"softplus", Kind::kSoftplus, 0, 0, 0},
};

// Alphas and betas are used up in order by the functions that have them.
StatusOr<std::vector<RnnActivation>> Activations(
    const Attrs& attrs, const std::vector<std::string>& names) {
  const std::vector<double>& alphas = attrs.Floats("activation_alpha");
  const std::vector<double>& betas = attrs.Floats("activation_beta");
  size_t alpha = 0;
  size_t beta = 0;
  std::vector<RnnActivation> list;
  for (const std::string& name : names) {
    std::string low;
    for (const char c : name) {
      low += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const auto* row =
        std::find_if(std::begin(kActivations), std::end(kActivations),
                     [&](const ActivationRow& r) { return r.name == low; });
    if (row == std::end(kActivations)) {
      return Unimplemented("activation '" + name + "' is not known");
    }
    RnnActivation f{row->kind, row->alpha, row->beta};
    if (row->parameters > 0 && alpha < alphas.size()) f.alpha = alphas[alpha++];
    if (row->parameters > 1 && beta < betas.size()) f.beta = betas[beta++];
    list.push_back(f);
  }
  return list;
}

}  // namespace

StatusOr<RnnPlan> PlanRnn(const Call& call, int64_t gates,
                          const std::vector<std::string>& defaults) {
  RETURN_IF_ERROR(CountOperands(call, 3, 8));
  RETURN_IF_ERROR(FloatOperand(call, 0, "x"));
  for (const size_t i : {1, 2, 3, 5, 6, 7}) {
    RETURN_IF_ERROR(SameType(call, i, "operand " + std::to_string(i + 1)));
  }
  const Attrs& attrs = call.attrs();
  const Shape& x = call.arg(0).shape;
  const Shape& w = call.arg(1).shape;
  const std::string_view direction = attrs.Text("direction", "forward");
  if (direction != "forward" && direction != "reverse" &&
      direction != "bidirectional") {
    return InvalidArgument("direction is '" + std::string(direction) + "'");
  }
  if (x.rank() != 3 || w.rank() != 3 || w[1] % gates != 0) {
    return InvalidArgument("x of shape " + x.ToString() + " and weights of " +
                           w.ToString() + " do not fit together");
  }
  RnnPlan plan;
  plan.gates = gates;
  plan.batch_first = attrs.Int("layout", 0) == 1;
  plan.seq = x[plan.batch_first ? 1 : 0];
  plan.batch = x[plan.batch_first ? 0 : 1];
  plan.input = x[2];
  plan.hidden = w[1] / gates;
  plan.directions = direction == "bidirectional" ? 2 : 1;
  plan.reverse = direction == "reverse";
  plan.clip = attrs.Float("clip", 0);
  const int64_t n = gates * plan.hidden;
  const int64_t d = plan.directions;
  RETURN_IF_ERROR(ShapeIs(call, 1, {d, n, plan.input}, "w"));
  RETURN_IF_ERROR(ShapeIs(call, 2, {d, n, plan.hidden}, "r"));
  RETURN_IF_ERROR(ShapeIs(call, 3, {d, 2 * n}, "the bias"));
  RETURN_IF_ERROR(ShapeIs(call, 4, {plan.batch}, "sequence_lens"));
  const Shape state = plan.batch_first ? Shape{plan.batch, d, plan.hidden}
                                       : Shape{d, plan.batch, plan.hidden};
  RETURN_IF_ERROR(ShapeIs(call, 5, state, "initial_h"));
  if (call.arg(4).given && call.arg(4).dtype != DType::kI32) {
    return InvalidArgument("sequence_lens must be INT32");
  }
  std::vector<std::string> names = attrs.Texts("activations");
  if (names.empty()) {
    for (int64_t i = 0; i < d; ++i) {
      names.insert(names.end(), defaults.begin(), defaults.end());
    }
  }
  if (names.size() != static_cast<size_t>(d) * defaults.size()) {
    return InvalidArgument("there are " + std::to_string(names.size()) +
                           " activations, not " + std::to_string(d) +
                           " times " + std::to_string(defaults.size()));
  }
  ASSIGN_OR_RETURN(plan.activations, Activations(attrs, names));
  return plan;
}

Types RnnTypes(const Call& call, const RnnPlan& plan, bool two_states) {
  const DType dtype = call.arg(0).dtype;
  const Shape y =
      plan.batch_first
          ? Shape{plan.batch, plan.seq, plan.directions, plan.hidden}
          : Shape{plan.seq, plan.directions, plan.batch, plan.hidden};
  const Shape state = plan.batch_first
                          ? Shape{plan.batch, plan.directions, plan.hidden}
                          : Shape{plan.directions, plan.batch, plan.hidden};
  ASSIGN_OR_RETURN(const Shape checked, Shape::Checked(y.dims()));
  std::vector<ValueType> types = {{dtype, checked}, {dtype, state}};
  if (two_states) types.push_back({dtype, state});
  return Outputs(call, std::move(types));
}

StatusOr<std::vector<int64_t>> RnnLengths(const Call& call,
                                          const RnnPlan& plan) {
  std::vector<int64_t> lengths(static_cast<size_t>(plan.batch), plan.seq);
  if (!call.arg(4).given) return lengths;
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = call.arg(4).data<int32_t>()[i];
    if (lengths[i] < 0 || lengths[i] > plan.seq) {
      return OutOfRange("sequence_lens has a " + std::to_string(lengths[i]) +
                        "; the sequence has " + std::to_string(plan.seq) +
                        " steps");
    }
  }
  return lengths;
}

}  // namespace millrace::models::graph
