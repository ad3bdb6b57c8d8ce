// Sizes in memory as people read and write them.
//
//   SizeText(6'289'368'064)     => "5.86 GiB"
//   SizeSetting(6'289'368'064)  => "5999MiB"
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

// Rounded: "5.86 GiB", "92.3 MiB", "3000 bytes".
std::string SizeText(int64_t bytes);
// As a setting takes it, at least `bytes`: whole MiB, or bytes below one.
std::string SizeSetting(int64_t bytes);

}  // namespace millrace
