#include "config/yaml.h"

#include <yaml-cpp/yaml.h>

namespace millrace::config {
namespace {

// Counts the nodes at and below `node`, which is `depth` levels down.
void Check(const YAML::Node& node, int depth, int* nodes) {
  if (depth > kMaxYamlDepth) {
    throw YAML::ParserException(node.Mark(),
                                "values are nested deeper than " +
                                    std::to_string(kMaxYamlDepth) +
                                    " levels, or an alias holds itself");
  }
  if (++*nodes > kMaxYamlNodes) {
    throw YAML::ParserException(
        node.Mark(), "there are more than " + std::to_string(kMaxYamlNodes) +
                         " values, those that an alias repeats counted again");
  }
  for (auto each = node.begin(); each != node.end(); ++each) {
    if (node.IsMap()) {
      Check(each->first, depth + 1, nodes);
      Check(each->second, depth + 1, nodes);
    } else {
      Check(*each, depth + 1, nodes);
    }
  }
}

}  // namespace

YAML::Node LoadYaml(const std::string& text) {
  YAML::Node document = YAML::Load(text);
  int nodes = 0;
  Check(document, 0, &nodes);
  return document;
}

}  // namespace millrace::config
