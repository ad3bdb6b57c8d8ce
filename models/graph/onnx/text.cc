#include "models/graph/onnx/text.h"

#include "config/base/utf8.h"

namespace millrace::models::graph {

std::string Cleaned(std::string_view text) {
  std::string clean = ReplaceInvalidUtf8(Shortened(text, 200));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  }
  return clean;
}

std::string Quoted(std::string_view text) { return "'" + Cleaned(text) + "'"; }

}  // namespace millrace::models::graph
