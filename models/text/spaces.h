// White space as the tokenizers that models are trained with have it.
#pragma once

#include <cstddef>
#include <string_view>

namespace millrace::models {

// The place behind white space that begins at `at`.
size_t AfterSpaces(std::string_view text, size_t at);
// Where white space that ends at `end` begins; not before `least`.
size_t BeforeSpaces(std::string_view text, size_t least, size_t end);

}  // namespace millrace::models
