#include "models/graph/ops/einsum_equation.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace millrace::models::graph {
namespace {

// Letters, and one of these for each dimension that an ellipsis stands for,
// counted from the last.
constexpr char kEllipsis = '\x01';

Status BadEquation(std::string_view text, std::string_view why) {
  return InvalidArgument("equation '" + std::string(text) + "' " +
                         std::string(why));
}

// One operand's labels, its ellipsis spread over `dots` dimensions.
StatusOr<std::string> Spread(std::string_view text, std::string_view term,
                             int dots) {
  std::string labels;
  bool seen = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      if (seen || term.substr(i, 3) != "...") {
        return BadEquation(text, "has a stray dot");
      }
      seen = true;
      i += 2;
      for (int d = dots; d > 0; --d) {
        labels += static_cast<char>(kEllipsis + d - 1);
      }
    } else if (std::isalpha(static_cast<unsigned char>(term[i])) != 0) {
      labels += term[i];
    } else {
      return BadEquation(text, "has a label that is no letter");
    }
  }
  return labels;
}

}  // namespace

StatusOr<Equation> ParseEquation(const Call& call) {
  const std::string_view given = call.attrs().Text("equation", "");
  std::string text;
  std::copy_if(given.begin(), given.end(), std::back_inserter(text),
               [](char c) { return c != ' '; });
  const size_t arrow = text.find("->");
  std::string_view left = std::string_view(text).substr(0, arrow);
  Equation equation;
  int most_dots = 0;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const size_t comma = left.find(',');
    if ((comma == left.npos) != (i + 1 == call.args.size())) {
      return BadEquation(given, "does not name as many operands as there are");
    }
    const std::string_view term = left.substr(0, comma);
    const Shape& shape = call.arg(i).shape;
    ASSIGN_OR_RETURN(const std::string plain, Spread(given, term, 0));
    const bool has_dots = plain.size() != term.size();
    const int dots = shape.rank() - static_cast<int>(plain.size());
    if (dots < 0 || (dots > 0 && !has_dots)) {
      return BadEquation(
          given, "does not fit an operand of shape " + shape.ToString());
    }
    most_dots = std::max(most_dots, dots);
    ASSIGN_OR_RETURN(std::string labels, Spread(given, term, dots));
    for (int d = 0; d < shape.rank(); ++d) {
      int64_t& size =
          equation.sizes.try_emplace(labels[static_cast<size_t>(d)], int64_t{1})
              .first->second;
      if (shape[d] != size && shape[d] != 1 && size != 1) {
        return BadEquation(given, "gives one label two sizes, " +
                                      std::to_string(size) + " and " +
                                      std::to_string(shape[d]));
      }
      if (shape[d] != 1) size = shape[d];
    }
    equation.inputs.push_back(std::move(labels));
    if (comma != left.npos) left = left.substr(comma + 1);
  }
  if (arrow != text.npos) {
    ASSIGN_OR_RETURN(
        equation.output,
        Spread(given, std::string_view(text).substr(arrow + 2), most_dots));
  } else {
    // Ellipsis first, then labels that occur once, in their order.
    std::string all;
    for (const std::string& labels : equation.inputs) all += labels;
    for (int d = most_dots; d > 0; --d) {
      equation.output += static_cast<char>(kEllipsis + d - 1);
    }
    for (const auto& [label, size] : equation.sizes) {
      if (std::isalpha(static_cast<unsigned char>(label)) != 0 &&
          std::count(all.begin(), all.end(), label) == 1) {
        equation.output += label;
      }
    }
  }
  for (const char label : equation.output) {
    if (equation.sizes.count(label) == 0 ||
        std::count(equation.output.begin(), equation.output.end(), label) > 1) {
      return BadEquation(given, "has an output that no operand explains");
    }
  }
  return equation;
}

}  // namespace millrace::models::graph
