// Which version of a model serves a request that names none: a canary by
// weights, or the one that a header of the request asks for.
//
//   version_policy: all
//   traffic: {1: 90, 2: 10}        # weights of versions, or of their labels
//
//   traffic:
//     weights: {stable: 90, next: 10}
//     pin_by: X-User-Id            # equal values: the same version
//     seed: 7                      # another seed pins users otherwise
//     variant_header: X-Variant    # its value chooses
//     variants: {a: stable, b: next}
//
// Headers are HTTP's, or metadata of gRPC.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"

namespace YAML {
class Node;
}

namespace millrace::config {

struct TrafficSettings {
  static constexpr int64_t kMaxWeight = 1'000'000;
  static constexpr size_t kMaxEntries = 100;

  // Version or label → share of the weights' sum. Empty: the highest version.
  std::vector<std::pair<std::string, int64_t>> weights = {};
  std::string pin_by = {};  // lower case; empty: no header pins
  int64_t seed = 0;
  std::string variant_header = {};                   // lower case; empty: none
  std::map<std::string, std::string> variants = {};  // value → version or label
};

// The value of the key `traffic` in config.yaml. May throw what yaml-cpp throws
// for values of another kind. INVALID_ARGUMENT says what is wrong.
StatusOr<TrafficSettings> ReadTraffic(const YAML::Node& node);

// The same with a version's number for each label. INVALID_ARGUMENT names what
// is neither a label nor one of `versions`, those that are served.
StatusOr<TrafficSettings> ResolveVersions(
    TrafficSettings settings, const std::map<std::string, std::string>& labels,
    const std::vector<std::string>& versions);

// "1=90,2=10 pin_by=x-user-id seed=7 x-variant:a=1,b=2": for metadata.
std::string TrafficText(const TrafficSettings& settings);

}  // namespace millrace::config
