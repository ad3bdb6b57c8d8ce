// Which version of a model serves a request that names none. The repository
// asks; what the answer follows from (weights, headers) is behind this.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace millrace::server {

// What a request says of itself, whatever its wire.
class RequestFields {
 public:
  virtual ~RequestFields() = default;
  // The value of a header or of a call's metadata; `name` in lower case. Empty:
  // it has none.
  virtual std::string_view Header(std::string_view name) const = 0;
};

// Thread-safe. Called under the repository's lock, so implementations are
// short, do not block and do not call the repository.
class VersionChoice {
 public:
  virtual ~VersionChoice() = default;
  // One of `ready`, which is ascending and not empty.
  virtual std::string Choose(const RequestFields& request,
                             std::span<const std::string> ready) = 0;
};

}  // namespace millrace::server
