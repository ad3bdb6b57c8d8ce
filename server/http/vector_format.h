// How /v1/embeddings writes a vector: which numbers, as a list or in base64.
//
//   encoding_format                output_dtype          `embedding` of a text
//   float (left out)               float (left out)      [0.12,-0.5,...]
//   base64                         float                 bytes of FP32
//   int8, uint8, binary, ubinary   left out              [31,-127,...]
//   base64                         int8, ...             bytes of these
//
// Names of encoding_format are OpenAI's and Mixedbread's, those of output_dtype
// Voyage's; embedding_type, Jina's, is read as encoding_format.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/base/status.h"

namespace millrace::server::http {

// kInt8: 127 times the value by the vector's largest absolute value, rounded to
// the nearest, ties to even: cosines between vectors stay as they are but for
// the rounding. kUint8: the same plus 128.
// kUbinary: a bit for each value, 1 where it is positive, the first one in the
// highest bit of the first byte; zeros fill the last byte. kBinary: each of
// these bytes minus 128. Both as sentence-transformers' quantize_embeddings.
enum class VectorType { kFloat, kInt8, kUint8, kBinary, kUbinary };

struct VectorFormat {
  VectorType type = VectorType::kFloat;
  bool base64 = false;
};

StatusOr<VectorFormat> ReadVectorFormat(const nlohmann::ordered_json& body);

// Appends the vector as JSON.
void AppendVector(const std::vector<float>& row, const VectorFormat& format,
                  std::string& out);

}  // namespace millrace::server::http
