// Reads YAML of users, under limits.
//
// An alias lets a small file hold itself or unfold into millions of nodes, so
// limits are checked before a document is read.
#pragma once

#include <string>

namespace YAML {
class Node;
}

namespace millrace::config {

inline constexpr int kMaxYamlDepth = 100;
inline constexpr int kMaxYamlNodes = 100'000;  // aliases unfolded

// The document of a text. Throws YAML::Exception, as yaml-cpp does for bad
// syntax, where it is nested deeper or has more nodes than the limits above
// permit.
YAML::Node LoadYaml(const std::string& text);

}  // namespace millrace::config
