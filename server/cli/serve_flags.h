// The flags of `millrace serve` that are no settings: its command line, its
// help and the completions of shells read these tables.
//
//   const ServeFlag* flag = FindServeFlag(ServeFlags(), "model_sha256");
//
// Constant tables.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace millrace::server {

enum class InHelp { kAlways, kBrief, kFull };  // --help, --help-all

struct ServeFlag {
  std::string_view name = {};   // without dashes in front
  std::string_view value = {};  // what help calls it; empty: a switch
  std::string_view help = {};
  InHelp in_help = InHelp::kFull;
  std::array<std::string_view, 2> choices = {};  // for the value
  std::array<std::string_view, 2> also = {};     // other names
};

// In the order of the help.
std::span<const ServeFlag> ServeFlags();

// TorchServe's, which --profile torchserve adds; the help names them in a line.
std::span<const ServeFlag> TorchServeFlags();

// By any of its names, written with dashes or underscores. Null: none is called
// so.
const ServeFlag* FindServeFlag(std::span<const ServeFlag> flags,
                               std::string_view name);

}  // namespace millrace::server
