// SHA-256 over bytes that come piece by piece, by OpenSSL.
//
//   Sha256 sha;
//   sha.Add(bytes.data(), bytes.size());
//   std::array<uint8_t, 32> digest = sha.Finish();   // once
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace millrace::models {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(const void* bytes, size_t size);
  // With its length, so that two texts never run into each other.
  void AddText(std::string_view text);
  std::array<uint8_t, 32> Finish();
  std::string FinishHex();

 private:
  struct Context;
  const std::unique_ptr<Context> context_;
};

}  // namespace millrace::models
