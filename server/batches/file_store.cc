#include "server/batches/file_store.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/log.h"
#include "config/base/utf8.h"
#include "server/batches/durable_file.h"

namespace millrace::server {
namespace {

using Json = nlohmann::ordered_json;

std::string AboutText(const StoredFile& file) {
  Json json = {{"id", file.id},           {"filename", file.filename},
               {"purpose", file.purpose}, {"tenant", file.tenant},
               {"bytes", file.bytes},     {"created_at", file.created_at},
               {"number", file.number}};
  if (file.expires_at) json["expires_at"] = *file.expires_at;
  return DumpJson(json);
}

StatusOr<StoredFile> ReadAbout(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  StoredFile file;
  try {
    file.id = json.at("id").get<std::string>();
    file.filename = json.at("filename").get<std::string>();
    file.purpose = json.at("purpose").get<std::string>();
    file.tenant = json.at("tenant").get<std::string>();
    file.bytes = json.at("bytes").get<int64_t>();
    file.created_at = json.at("created_at").get<int64_t>();
    file.number = json.at("number").get<int64_t>();
    if (json.contains("expires_at")) {
      file.expires_at = json.at("expires_at").get<int64_t>();
    }
  } catch (const Json::exception& error) {
    return DataLoss(error.what());
  }
  return file;
}

Status NoSuchFile(std::string_view id) {
  return NotFound("there is no file '" + Shortened(id, 100) +
                  "'; GET /v1/files lists those of this key's tenant")
      .Because("file_not_found");
}

}  // namespace

std::string NewId(std::string_view prefix) {
  uint8_t bytes[12] = {};
  // Cannot fail for so few bytes once the system is up.
  if (getrandom(bytes, sizeof bytes, 0) < 0) bytes[0] = 0;
  std::string id(prefix);
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    id.push_back(kDigits[byte >> 4]);
    id.push_back(kDigits[byte & 15]);
  }
  return id;
}

StatusOr<std::unique_ptr<FileStore>> FileStore::Open(
    const std::string& dir, int64_t max_bytes,
    const std::set<std::string>& expected) {
  std::unique_ptr<FileStore> store(new FileStore(dir, max_bytes));
  RETURN_IF_ERROR(store->Load(expected));
  return store;
}

Status FileStore::Load(const std::set<std::string>& expected) {
  namespace fs = std::filesystem;
  MutexLock lock(mu_);
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir_, ec)) {
    if (entry.path().extension() != ".json") continue;
    const StatusOr<std::string> text = ReadBytes(entry.path().string());
    const StatusOr<StoredFile> file =
        text.ok() ? ReadAbout(*text) : StatusOr<StoredFile>(text.status());
    if (!file.ok() || file->id != entry.path().stem().string() ||
        !FileExists(PathOf(file->id))) {
      LogWarning("a file of batch_dir is left out",
                 {{"path", entry.path().string()},
                  {"why", file.ok() ? "its content is missing"
                                    : file.status().message()}});
      continue;
    }
    Refund(-file->bytes);
    last_number_ = std::max(last_number_, file->number);
    files_[file->id] = *file;
  }
  std::vector<fs::path> torn;
  for (const auto& entry : fs::directory_iterator(dir_, ec)) {
    const std::string stem = entry.path().stem().string();
    const bool is_content = entry.path().extension() == ".jsonl";
    if (entry.path().extension() == ".tmp" ||
        (is_content && files_.count(stem) == 0 && expected.count(stem) == 0)) {
      torn.push_back(entry.path());
    }
  }
  for (const fs::path& path : torn) fs::remove(path, ec);
  return OkStatus();
}

std::string FileStore::PathOf(std::string_view id) const {
  return dir_ + "/" + std::string(id) + ".jsonl";
}

std::string FileStore::AboutPathOf(std::string_view id) const {
  return dir_ + "/" + std::string(id) + ".json";
}

Status FileStore::Charge(int64_t bytes) {
  const int64_t used =
      used_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (used <= max_bytes_) return OkStatus();
  Refund(bytes);
  return ResourceExhausted(
             "files of batches have " + std::to_string(used - bytes) +
             " bytes and may have " + std::to_string(max_bytes_) +
             " together, so that " + std::to_string(bytes) +
             " more do not fit; delete some (DELETE /v1/files/{id}) or raise "
             "batch_dir_max_size")
      .Because("storage_full");
}

void FileStore::Refund(int64_t bytes) {
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

// The list has it once its description is durable.
Status FileStore::Write(StoredFile& about) {
  {
    MutexLock lock(mu_);
    about.number = ++last_number_;
  }
  RETURN_IF_ERROR(WriteDurably(AboutPathOf(about.id), AboutText(about)));
  MutexLock lock(mu_);
  files_[about.id] = about;
  return OkStatus();
}

StatusOr<StoredFile> FileStore::Add(StoredFile about, std::string_view bytes) {
  {
    MutexLock lock(mu_);
    if (files_.size() >= kMostFiles) {
      return ResourceExhausted("this server keeps " +
                               std::to_string(kMostFiles) +
                               " files, which is its limit; delete some "
                               "(DELETE /v1/files/{id})")
          .Because("storage_full");
    }
  }
  about.id = NewId("file-");
  about.bytes = static_cast<int64_t>(bytes.size());
  RETURN_IF_ERROR(Charge(about.bytes));
  Status written = WriteDurably(PathOf(about.id), bytes);
  if (written.ok()) written = Write(about);
  if (!written.ok()) {
    unlink(PathOf(about.id).c_str());
    Refund(about.bytes);
    return written;
  }
  return about;
}

Status FileStore::Adopt(StoredFile about, const std::string& path,
                        bool counted) {
  {
    MutexLock lock(mu_);
    if (files_.count(about.id) != 0) return OkStatus();
  }
  const std::string content = PathOf(about.id);
  std::error_code ec;
  if (std::filesystem::file_size(path, ec) == 0 && !ec) {
    std::filesystem::remove(path, ec);
    return OkStatus();
  }
  if (FileExists(path)) RETURN_IF_ERROR(RenameDurably(path, content));
  about.bytes = static_cast<int64_t>(std::filesystem::file_size(content, ec));
  if (ec) return OkStatus();
  RETURN_IF_ERROR(Write(about));
  if (!counted) Refund(-about.bytes);
  return OkStatus();
}

StatusOr<StoredFile> FileStore::Find(std::string_view id,
                                     std::string_view tenant) const {
  MutexLock lock(mu_);
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.tenant != tenant) {
    return NoSuchFile(id);
  }
  return found->second;
}

StatusOr<StoredFile> FileStore::Remove(std::string_view id,
                                       std::string_view tenant) {
  StoredFile removed;
  {
    MutexLock lock(mu_);
    const auto found = files_.find(id);
    if (found == files_.end() || found->second.tenant != tenant) {
      return NoSuchFile(id);
    }
    removed = found->second;
    files_.erase(found);
  }
  // In this order: without a description its content is no file.
  unlink(AboutPathOf(removed.id).c_str());
  unlink(PathOf(removed.id).c_str());
  Refund(removed.bytes);
  return removed;
}

std::vector<StoredFile> FileStore::List(std::string_view tenant,
                                        std::string_view purpose) const {
  std::vector<StoredFile> listed;
  {
    MutexLock lock(mu_);
    for (const auto& [id, file] : files_) {
      if (file.tenant != tenant) continue;
      if (purpose.empty() || file.purpose == purpose) listed.push_back(file);
    }
  }
  std::sort(listed.begin(), listed.end(),
            [](const StoredFile& a, const StoredFile& b) {
              return a.number > b.number;
            });
  return listed;
}

std::vector<StoredFile> FileStore::Expired(int64_t now) const {
  std::vector<StoredFile> expired;
  MutexLock lock(mu_);
  for (const auto& [id, file] : files_) {
    if (file.expires_at.value_or(INT64_MAX) <= now) expired.push_back(file);
  }
  return expired;
}

StatusOr<std::string> FileStore::Read(std::string_view id) const {
  return ReadBytes(PathOf(id));
}

}  // namespace millrace::server
