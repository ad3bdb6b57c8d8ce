#include "server/pull/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "config/base/utf8.h"
#include "server/key_file.h"

namespace millrace::server {
namespace {

StatusOr<std::string> OfFile(const std::filesystem::path& path,
                             Digester digester) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(size_t{1} << 20);
  if (!file) return NotFound("'" + path.string() + "' cannot be read");
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    digester.Add({block.data(), static_cast<size_t>(file.gcount())});
  }
  if (file.bad()) return NotFound("'" + path.string() + "' cannot be read");
  return digester.Hex();
}

}  // namespace

struct Digester::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Digester::Digester(Kind kind) : context_(std::make_unique<Context>()) {
  CHECK(EVP_DigestInit_ex(context_->evp,
                          kind == Kind::kSha256 ? EVP_sha256() : EVP_sha1(),
                          nullptr) == 1,
        "OpenSSL has both digests");
}

Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::Add(std::string_view bytes) {
  CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1,
        "a digest takes any bytes");
}

std::string Digester::Hex() {
  std::array<uint8_t, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(context_->evp, bytes.data(), &size) == 1,
        "a digest ends once");
  return HexText(std::span(bytes).first(size));
}

StatusOr<std::string> Sha256OfFile(const std::filesystem::path& path) {
  return OfFile(path, Digester(Digester::Kind::kSha256));
}

StatusOr<std::string> GitBlobOfFile(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound("'" + path.string() + "' cannot be read");
  Digester digester(Digester::Kind::kSha1);
  const std::string head = "blob " + std::to_string(size);
  digester.Add({head.c_str(), head.size() + 1});
  return OfFile(path, std::move(digester));
}

StatusOr<std::string> ParseSha256(std::string_view flag, std::string text) {
  if (text.starts_with("sha256:")) text.erase(0, 7);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (text.size() != 64 ||
      !std::all_of(text.begin(), text.end(),
                   [](unsigned char c) { return std::isxdigit(c) != 0; })) {
    return InvalidArgument(std::string(flag) + " is '" + Shortened(text, 80) +
                           "'; a SHA-256 has 64 hexadecimal digits, as "
                           "sha256sum prints them");
  }
  return text;
}

}  // namespace millrace::server
