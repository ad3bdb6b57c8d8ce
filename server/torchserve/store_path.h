// Names of clients as paths of a store of archives.
#pragma once

#include <optional>
#include <string>

namespace millrace::server::torchserve {

// The path of a file or folder of the store. None: the name has a folder, or
// there is nothing of that name, or it is a link out of the store.
std::optional<std::string> PathInStore(const std::string& store,
                                       const std::string& name);

}  // namespace millrace::server::torchserve
