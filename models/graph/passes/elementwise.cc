#include "models/graph/passes/elementwise.h"

#include <algorithm>
#include <iterator>

namespace millrace::models::graph {
namespace {

constexpr std::string_view kUnary[] = {
    "Abs",       "Cast",        "Ceil",
    "Celu",      "Clip",        "Cos",
    "Elu",       "Erf",         "Exp",
    "Floor",     "Gelu",        "IsInf",
    "IsNaN",     "HardSigmoid", "HardSwish",
    "LeakyRelu", "Log",         "Mish",
    "Neg",       "Not",         "Reciprocal",
    "Relu",      "Round",       "Selu",
    "Sigmoid",   "Sign",        "Sin",
    "Softplus",  "Softsign",    "Sqrt",
    "Swish",     "Tanh",        "ThresholdedRelu"};
constexpr std::string_view kBroadcast[] = {
    "Add",  "And",         "Div",   "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max",   "Min",   "Mod",     "Mul",
    "Or",   "Pow",         "PRelu", "Sub",   "Where",   "Xor"};
template <size_t n>
bool OneOf(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool IsElementwiseUnary(std::string_view op) { return OneOf(kUnary, op); }
bool IsElementwiseBroadcast(std::string_view op) {
  return OneOf(kBroadcast, op);
}

}  // namespace millrace::models::graph
