// The tables of what templates may call, each in its own source file.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/text/jinja/runtime.h"

namespace millrace::models::jinja {

std::span<const Builtin> TextFilters();
std::span<const Builtin> ListFilters();
std::span<const Builtin> SelectFilters();
std::span<const Builtin> ValueFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> Globals();
std::span<const Builtin> StringMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> ListMethods();
std::span<const Builtin> LoopMethods();

// text.replace(from, to), paid for.
StatusOr<Value> ReplaceText(Runtime& runtime, const Text& text,
                            std::string_view from, const Text& to,
                            int64_t count);

}  // namespace millrace::models::jinja
