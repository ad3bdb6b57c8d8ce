#include "server/torchserve/tokens.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/key_file.h"

namespace millrace::server::torchserve {
namespace {

using Json = nlohmann::ordered_json;

int64_t Now() { return std::time(nullptr); }

std::string TimeText(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Status CannotWrite(const std::string& path) {
  return FailedPrecondition(
      "the keys cannot be written to '" + path + "': " + std::strerror(errno) +
      "; start in a folder that can be written, or say --disable-token-auth");
}

// Written beside and renamed: a reader sees the old file or the new one.
Status WriteForOwner(const std::string& path, std::string_view text) {
  const std::string beside = path + ".new";
  // What stands there may be a link, or readable for others.
  unlink(beside.c_str());
  const int fd =
      open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
           S_IRUSR | S_IWUSR);
  if (fd < 0) return CannotWrite(path);
  Status status;
  while (!text.empty() && status.ok()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      status = CannotWrite(path);
    } else {
      text.remove_prefix(static_cast<size_t>(count));
    }
  }
  close(fd);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = CannotWrite(path);
  }
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace

StatusOr<std::unique_ptr<Tokens>> Tokens::Create(std::string path,
                                                 std::chrono::seconds lifetime,
                                                 Auth* auth) {
  std::unique_ptr<Tokens> tokens(new Tokens(std::move(path), lifetime, auth));
  ASSIGN_OR_RETURN(tokens->api_key_, NewKey());
  ASSIGN_OR_RETURN(const Token management, tokens->MakeToken());
  ASSIGN_OR_RETURN(const Token inference, tokens->MakeToken());
  {
    MutexLock lock(tokens->mu_);
    RETURN_IF_ERROR(tokens->Publish(management, inference));
  }
  LogInfo("requests want a key",
          {{"key_file", tokens->path_}, {"lifetime_s", lifetime.count()}});
  return tokens;
}

void Tokens::RemoveFile() {
  MutexLock lock(mu_);
  if (is_written_) unlink(path_.c_str());
  is_written_ = false;
}

StatusOr<Tokens::Token> Tokens::MakeToken() const {
  Token token;
  ASSIGN_OR_RETURN(token.key, NewKey());
  token.expires_unix = Now() + lifetime_.count();
  return token;
}

Status Tokens::Publish(const Token& management, const Token& inference) {
  Json file = Json::object();
  for (const auto& [name, token] :
       {std::pair{"management", &management}, {"inference", &inference}}) {
    file[name] = {{"key", token->key},
                  {"expiration time", TimeText(token->expires_unix)}};
  }
  file["API"] = {{"key", api_key_}};
  RETURN_IF_ERROR(WriteForOwner(path_, file.dump(2) + "\n"));
  is_written_ = true;
  management_ = management;
  inference_ = inference;
  const auto entry = [](const char* id, const Token& token, Scopes scopes) {
    return KeyEntry{.id = id,
                    .digest = Sha256(token.key),
                    .tenant = std::string(kDefaultTenant),
                    .scopes = scopes,
                    .expires_unix = token.expires_unix};
  };
  constexpr auto kManagement = static_cast<Scopes>(Scope::kManage) |
                               static_cast<Scopes>(Scope::kMetrics);
  auth_.IssueKeys(
      {entry("inference", inference, static_cast<Scopes>(Scope::kInfer)),
       entry("management", management, kManagement)});
  return OkStatus();
}

Status Tokens::CheckApiKey(std::string_view authorization) const {
  const std::string_view key = BearerKey(authorization);
  if (key.size() == api_key_.size() &&
      CRYPTO_memcmp(key.data(), api_key_.data(), key.size()) == 0) {
    return OkStatus();
  }
  return Unauthenticated(
             "Token Authorization failed. Token either incorrect, expired, or "
             "not provided correctly; /token needs the API key of the key file")
      .Because("invalid_api_key");
}

StatusOr<std::string> Tokens::Renew(std::string_view type) {
  if (type != "inference" && type != "management") {
    return InvalidArgument("type is '" + Shortened(type, 100) +
                           "' but must be inference or management")
        .At("type");
  }
  ASSIGN_OR_RETURN(const Token token, MakeToken());
  {
    MutexLock lock(mu_);
    const bool is_inference = type == "inference";
    RETURN_IF_ERROR(Publish(is_inference ? management_ : token,
                            is_inference ? token : inference_));
  }
  LogInfo("key renewed", {{"type", type}, {"key_file", path_}});
  return DumpJson(Json{{"status", "the key for " + std::string(type) +
                                      " in the key file is a new one"}});
}

}  // namespace millrace::server::torchserve
