// The console: a page for people, at /console, made of the files of this
// folder, which are part of the binary. Plain HTML, CSS and JavaScript modules,
// without a build chain; it loads nothing from elsewhere and speaks to the
// server's public routes alone.
//
// Immutable.
#pragma once

#include <span>
#include <string_view>

namespace millrace::server {

struct ConsoleFile {
  std::string_view name;  // "style.css"
  std::string_view text;
};

std::span<const ConsoleFile> ConsoleFiles();

}  // namespace millrace::server
