#include "server/torchserve/store_path.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace millrace::server::torchserve {

namespace fs = std::filesystem;

std::optional<std::string> PathInStore(const std::string& store,
                                       const std::string& name) {
  const bool is_plain = !name.empty() && name.size() <= 255 && name != "." &&
                        name != ".." && name.find('/') == std::string::npos &&
                        name.find('\0') == std::string::npos;
  if (!is_plain || store.empty()) return std::nullopt;
  const fs::path path = fs::path(store) / name;
  std::error_code error;
  const fs::path root = fs::canonical(store, error);
  const fs::path real = error ? fs::path() : fs::canonical(path, error);
  const bool is_inside =
      !error &&
      std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first ==
          root.end();
  if (!is_inside) return std::nullopt;
  return path.string();
}

}  // namespace millrace::server::torchserve
