#include "models/llm/sha256.h"

#include <openssl/evp.h>

namespace millrace::models {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr);
}

Sha256::~Sha256() = default;

void Sha256::Add(const void* bytes, size_t size) {
  EVP_DigestUpdate(context_->evp, bytes, size);
}

void Sha256::AddText(std::string_view text) {
  const uint64_t size = text.size();
  Add(&size, sizeof(size));
  Add(text.data(), text.size());
}

std::array<uint8_t, 32> Sha256::Finish() {
  std::array<uint8_t, 32> digest{};
  EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr);
  return digest;
}

std::string Sha256::FinishHex() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : Finish()) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace millrace::models
