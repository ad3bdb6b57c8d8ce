#include "server/http/content_coding.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>

namespace millrace::server::http {
namespace {

constexpr int kGzipBits = 15 + 16;  // a window of 32 KiB in gzip's format
constexpr int kZlibBits = 15;
constexpr size_t kStep = size_t{64} << 10;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

bool EqualsIgnoringCase(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? x - 'A' + 'a' : x) == y;
         });
}

// Of ";q=0.5"; 1 where it is missing or unreadable.
double QualityOf(std::string_view parameters) {
  const size_t at = parameters.find("q=");
  if (at == std::string_view::npos) return 1;
  const std::string_view number = Trimmed(parameters.substr(at + 2));
  double quality = 1;
  std::from_chars(number.data(), number.data() + number.size(), quality);
  return quality;
}

Status NoMemory() {
  return ResourceExhausted("there is no memory to compress or decompress");
}

}  // namespace

StatusOr<ContentCoding> ReadContentCoding(std::string_view header) {
  const std::string_view name = Trimmed(header);
  if (name.empty() || EqualsIgnoringCase(name, "identity")) {
    return ContentCoding::kIdentity;
  }
  if (EqualsIgnoringCase(name, "gzip") || EqualsIgnoringCase(name, "x-gzip")) {
    return ContentCoding::kGzip;
  }
  if (EqualsIgnoringCase(name, "deflate")) return ContentCoding::kDeflate;
  return InvalidArgument("the Content-Encoding is '" + std::string(name) +
                         "'; send gzip, deflate or the body as it is")
      .Because("unsupported_media_type");
}

ContentCoding ChooseContentCoding(std::string_view accepted) {
  ContentCoding best = ContentCoding::kIdentity;
  double best_quality = 0;
  while (!accepted.empty()) {
    const size_t comma = std::min(accepted.find(','), accepted.size());
    const std::string_view item = accepted.substr(0, comma);
    accepted.remove_prefix(std::min(comma + 1, accepted.size()));
    const size_t semicolon = std::min(item.find(';'), item.size());
    const auto coding = ReadContentCoding(item.substr(0, semicolon));
    if (!coding.ok() || *coding == ContentCoding::kIdentity) continue;
    const double quality = QualityOf(item.substr(semicolon));
    if (quality > best_quality) {
      best = *coding;
      best_quality = quality;
    }
  }
  return best;
}

std::string_view ContentCodingName(ContentCoding coding) {
  return coding == ContentCoding::kGzip      ? "gzip"
         : coding == ContentCoding::kDeflate ? "deflate"
                                             : "";
}

StatusOr<std::string> Decoded(std::string_view bytes, ContentCoding coding,
                              int64_t max_bytes) {
  if (coding == ContentCoding::kIdentity) return std::string(bytes);
  const std::string name(ContentCodingName(coding));
  if (bytes.size() > kMostCodedBytes) {
    return InvalidArgument("the body has " + std::to_string(bytes.size()) +
                           " bytes in " + name + " but at most " +
                           std::to_string(kMostCodedBytes) +
                           " can be decoded; send it as it is")
        .Because("payload_too_large");
  }
  z_stream stream = {};
  if (inflateInit2(&stream,
                   coding == ContentCoding::kGzip ? kGzipBits : kZlibBits) !=
      Z_OK) {
    return NoMemory();
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string text;
  int ended = Z_OK;
  while (ended == Z_OK && static_cast<int64_t>(text.size()) <= max_bytes) {
    const size_t before = text.size();
    text.resize(before + kStep);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + before);
    stream.avail_out = static_cast<uInt>(kStep);
    ended = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
    if (ended == Z_BUF_ERROR) break;  // no bytes are left
  }
  const uInt left = stream.avail_in;
  inflateEnd(&stream);
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return InvalidArgument("the body has more than " +
                           std::to_string(max_bytes) + " bytes once its " +
                           name +
                           " is undone; the limit is http_max_input_size")
        .Because("payload_too_large");
  }
  if (ended != Z_STREAM_END || left != 0) {
    return InvalidArgument("the body is not whole " + name +
                           ", as its Content-Encoding says");
  }
  return text;
}

StatusOr<std::string> Encoded(std::string_view bytes, ContentCoding coding) {
  if (coding == ContentCoding::kIdentity) return std::string(bytes);
  CHECK(bytes.size() <= kMostCodedBytes, "zlib counts in 32 bits");
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED,
                   coding == ContentCoding::kGzip ? kGzipBits : kZlibBits, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return NoMemory();
  }
  std::string text(deflateBound(&stream, static_cast<uLong>(bytes.size())),
                   '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "the bound holds");
  text.resize(text.size() - stream.avail_out);
  deflateEnd(&stream);
  return text;
}

}  // namespace millrace::server::http
