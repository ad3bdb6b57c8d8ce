#include "loadtest/input_files.h"

#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

namespace millrace::loadtest {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 10'000;

Status TooLarge(std::string_view what) {
  return InvalidArgument(std::string(what) +
                         " holds more than 1 GiB; give fewer or smaller files");
}

std::string Base64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}

}  // namespace

StatusOr<std::vector<std::string>> FilesAt(std::string_view flag,
                                           const std::string& path) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  int64_t bytes = 0;
  const std::string where = std::string(flag) + " '" + path + "'";
  for (fs::directory_iterator it(path, ec), end; !ec && it != end;
       it.increment(ec)) {
    if (it->path().filename().string().starts_with('.')) continue;
    const auto cannot_read = [&] {
      return InvalidArgument(where + ": '" + it->path().filename().string() +
                             "' cannot be read: " + ec.message() +
                             "; remove it");
    };
    const bool is_file = it->is_regular_file(ec);
    if (ec) return cannot_read();  // a link to nothing
    if (!is_file) continue;
    const uintmax_t size = it->file_size(ec);
    if (ec) return cannot_read();
    bytes += static_cast<int64_t>(size);
    if (bytes > kMostInputBytes) return TooLarge(where);
    files.push_back(it->path().string());
    if (files.size() > kMostFiles) {
      return InvalidArgument(where + " holds more than 10000 files; give less");
    }
  }
  if (ec) {
    return InvalidArgument(where + " cannot be read: " + ec.message());
  }
  if (files.empty()) {
    return InvalidArgument(where + " is a folder without a file");
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string_view ImageType(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return "image/jpeg";
  if (bytes.starts_with("\x89PNG\r\n")) return "image/png";
  if (bytes.starts_with("GIF8")) return "image/gif";
  if (bytes.size() > 12 && bytes.starts_with("RIFF") &&
      bytes.substr(8, 4) == "WEBP") {
    return "image/webp";
  }
  return "";
}

Status InlineImages(const std::string& folder, Dataset& dataset) {
  std::map<std::string, std::string> known;  // data URIs by path
  int64_t bytes = 0;
  for (Conversation& conversation : dataset) {
    for (Turn& turn : conversation.turns) {
      for (std::string& image : turn.images) {
        if (image.starts_with("http://") || image.starts_with("https://") ||
            image.starts_with("data:")) {
          continue;
        }
        const std::string path = (fs::path(folder) / image).string();
        const auto [at, is_new] = known.try_emplace(path);
        if (is_new) {
          std::error_code ec;
          const auto size = fs::file_size(path, ec);
          if (ec) {
            return InvalidArgument("the picture '" + path +
                                   "' cannot be read: " + ec.message());
          }
          bytes += static_cast<int64_t>(size);
          if (bytes > kMostInputBytes) return TooLarge("the data set");
          ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
          const std::string_view type = ImageType(file);
          if (type.empty()) {
            return InvalidArgument(
                "'" + path + "' is no picture; JPEG, PNG, WebP and GIF are");
          }
          at->second = "data:" + std::string(type) + ";base64," + Base64(file);
        }
        image = at->second;
      }
    }
  }
  return OkStatus();
}

}  // namespace millrace::loadtest
