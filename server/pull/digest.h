// SHA-256 and git's name of a blob, of files too large to hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::server {

// Not thread-safe.
class Digester {
 public:
  enum class Kind { kSha256, kSha1 };
  explicit Digester(Kind kind = Kind::kSha256);
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  void Add(std::string_view bytes);
  std::string Hex();  // once, at the end

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// NOT_FOUND when the file cannot be read.
StatusOr<std::string> Sha256OfFile(const std::filesystem::path& path);
// SHA-1 of "blob SIZE\0" and the content.
StatusOr<std::string> GitBlobOfFile(const std::filesystem::path& path);

// 64 hexadecimal digits in lower case, of what a user typed; INVALID_ARGUMENT
// names the flag otherwise. "sha256:" may stand in front.
StatusOr<std::string> ParseSha256(std::string_view flag, std::string text);

}  // namespace millrace::server
