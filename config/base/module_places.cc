#include "config/base/module_places.h"

#include <filesystem>
#include <system_error>

#include "config/base/variable.h"

namespace millrace {

std::vector<std::string> ModulePlaces(const char* variable, const char* file) {
  if (const char* path = Variable(variable)) return {path};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto folder = program.parent_path();
  return {folder / file, folder.parent_path() / "lib/millrace" / file};
}

}  // namespace millrace
