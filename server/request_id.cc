#include "server/request_id.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::server {
namespace {

constexpr size_t kMaxGivenBytes = 128;

}  // namespace

std::string RequestIdFrom(std::string_view given) {
  const bool usable = !given.empty() && given.size() <= kMaxGivenBytes &&
                      std::all_of(given.begin(), given.end(),
                                  [](char c) { return c > ' ' && c < 0x7f; });
  return usable ? std::string(given) : "req-" + RandomHex(24);
}

std::string RandomHex(int num_digits) {
  // A call into the system for each request would cost more than its id: each
  // thread uses up what it was given.
  thread_local std::array<uint8_t, 256> bytes;
  thread_local size_t used = bytes.size();
  const size_t num_bytes =
      std::min<size_t>((static_cast<size_t>(num_digits) + 1) / 2, bytes.size());
  if (used + num_bytes > bytes.size()) {
    // Cannot fail for so few bytes once the system is up.
    if (getrandom(bytes.data(), bytes.size(), 0) < 0) bytes = {};
    used = 0;
  }
  std::string hex;
  hex.reserve(2 * num_bytes);
  for (size_t i = 0; i < num_bytes; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    const uint8_t byte = bytes[used++];
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  hex.resize(std::min(hex.size(), static_cast<size_t>(num_digits)));
  return hex;
}

}  // namespace millrace::server
