// Reads YAML that others wrote.
//
// An alias lets a small file hold itself or unfold into millions of nodes, so
// whoever walks a document needs its limits checked first.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace millrace::config {

inline constexpr int kMaxYamlDepth = 100;
inline constexpr int kMaxYamlNodes = 100'000;  // aliases unfolded

// The document of a text. Throws YAML::Exception, as yaml-cpp does for bad
// syntax, where it is nested deeper or has more nodes than the limits above
// permit.
YAML::Node LoadYaml(const std::string& text);

}  // namespace millrace::config
