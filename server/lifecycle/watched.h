// What a model can tell of its predictions, where its configuration asks for
// it (config/drift_settings.h).
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
