#include "server/http/vector_format.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "server/http/text_work.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

constexpr std::array<std::pair<std::string_view, VectorType>, 5> kTypes{{
    {"float", VectorType::kFloat},
    {"int8", VectorType::kInt8},
    {"uint8", VectorType::kUint8},
    {"binary", VectorType::kBinary},
    {"ubinary", VectorType::kUbinary},
}};

std::optional<VectorType> TypeOf(std::string_view name) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return std::nullopt;
}

Status Unknown(const char* field, const std::string& value, const char* known) {
  return InvalidArgument(std::string(field) + " is '" + Shortened(value, 60) +
                         "' but must be " + known)
      .At(field);
}

std::vector<int> Scaled(const std::vector<float>& row, int zero) {
  float largest = 0;
  for (const float value : row) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  std::vector<int> out;
  out.reserve(row.size());
  for (const float value : row) {
    // As in lists of floats, NaN and infinity are 0.
    const bool counts = largest > 0 && std::isfinite(value);
    out.push_back(zero + (counts ? static_cast<int>(
                                       std::nearbyint(value / largest * 127.0f))
                                 : 0));
  }
  return out;
}

std::vector<int> Bits(const std::vector<float>& row, int less) {
  std::vector<int> out((row.size() + 7) / 8, 0);
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] > 0) out[i / 8] |= 0x80 >> (i % 8);
  }
  for (int& byte : out) byte -= less;
  return out;
}

std::vector<int> Quantized(const std::vector<float>& row, VectorType type) {
  switch (type) {
    case VectorType::kUint8:
      return Scaled(row, 128);
    case VectorType::kBinary:
      return Bits(row, 128);
    case VectorType::kUbinary:
      return Bits(row, 0);
    case VectorType::kFloat:
    case VectorType::kInt8:
      break;
  }
  return Scaled(row, 0);
}

void AppendBase64(const void* data, size_t bytes, std::string& out) {
  const size_t begin = out.size() + 1;
  out += '"';
  out.resize(begin + (bytes + 2) / 3 * 4 + 1);  // and the NUL that it writes
  const int written = EVP_EncodeBlock(
      reinterpret_cast<unsigned char*>(out.data() + begin),
      static_cast<const unsigned char*>(data), static_cast<int>(bytes));
  out.resize(begin + static_cast<size_t>(written));
  out += '"';
}

}  // namespace

StatusOr<VectorFormat> ReadVectorFormat(const Json& body) {
  VectorFormat format;
  ASSIGN_OR_RETURN(const auto jina,
                   handlers::ReadString(body, "embedding_type"));
  ASSIGN_OR_RETURN(const auto openai,
                   handlers::ReadString(body, "encoding_format"));
  const char* field = openai.has_value() ? "encoding_format" : "embedding_type";
  const std::optional<std::string>& encoding =
      openai.has_value() ? openai : jina;
  std::optional<VectorType> encoded;
  if (encoding.has_value()) {
    encoded = TypeOf(*encoding);
    format.base64 = *encoding == "base64";
    if (!encoded.has_value() && !format.base64) {
      return Unknown(field, *encoding,
                     "float, base64, int8, uint8, binary or ubinary");
    }
  }
  ASSIGN_OR_RETURN(const auto dtype,
                   handlers::ReadString(body, "output_dtype"));
  std::optional<VectorType> wanted = encoded;
  if (dtype.has_value()) {
    wanted = TypeOf(*dtype);
    if (!wanted.has_value()) {
      return Unknown("output_dtype", *dtype,
                     "float, int8, uint8, binary or ubinary");
    }
    if (encoded.value_or(VectorType::kFloat) != VectorType::kFloat &&
        encoded != wanted) {
      return InvalidArgument("output_dtype is '" + *dtype + "' but " + field +
                             " is '" + *encoding + "'; leave one of them out")
          .At("output_dtype");
    }
  }
  format.type = wanted.value_or(VectorType::kFloat);
  return format;
}

void AppendVector(const std::vector<float>& row, const VectorFormat& format,
                  std::string& out) {
  if (format.type == VectorType::kFloat) {
    format.base64 ? AppendBase64(row.data(), row.size() * sizeof(float), out)
                  : AppendNumbers(row, out);
    return;
  }
  const std::vector<int> numbers = Quantized(row, format.type);
  if (format.base64) {
    std::vector<uint8_t> bytes;
    bytes.reserve(numbers.size());
    for (const int number : numbers) {
      bytes.push_back(static_cast<uint8_t>(number));
    }
    AppendBase64(bytes.data(), bytes.size(), out);
    return;
  }
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(numbers[i]);
  }
  out += ']';
}

}  // namespace millrace::server::http
