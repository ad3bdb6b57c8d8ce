// A model whose predictions are watched for drift, as its configuration asks
// (config/drift_settings.h).
#pragma once

#include <string>

namespace millrace::server {

class Watched {
 public:
  virtual ~Watched() = default;
  // Histograms of the latest ones, a JSON object; empty: they are not watched.
  virtual std::string DriftJson() const = 0;
};

}  // namespace millrace::server
