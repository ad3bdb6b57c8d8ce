// "Did you mean": the known name nearest to a mistyped one.
#pragma once

#include <string_view>
#include <vector>

namespace millrace {

// The candidate with the fewest edits (insert, delete, replace, swap of
// neighbours) to `name`, the first of equals; "-" and "_" count as one
// character. Empty when none is near: more edits than a quarter of the name's
// characters, and than one. Then the shortest one that goes on behind whole
// words of at least five characters: "tensor-parallel" of
// "tensor-parallel-size".
std::string_view Nearest(std::string_view name,
                         const std::vector<std::string_view>& candidates);

}  // namespace millrace
