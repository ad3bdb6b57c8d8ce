// Tool calls whose arguments are JSON, between the tags of a model family:
// Hermes and Qwen, Granite, Llama 3, Mistral, DeepSeek. They differ in words
// only, which JsonCallWords holds.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "handlers/parsers/output_parser.h"

namespace millrace::handlers {

// What stands before the arguments where name and arguments are apart.
struct CallHeader {
  std::string name;
  std::string id = {};  // of the model's own making
};

struct JsonCallWords {
  // Each begins one call or a list of calls.
  std::vector<std::string> open = {};
  // Each ends it; none: the calls run to the end of the text.
  std::vector<std::string> close = {};
  // Tags around all calls, dropped wherever they stand.
  std::vector<std::string> dropped = {};
  // Bytes beside white space that may stand behind a call and mean nothing.
  std::string_view separators = ",;]";
  // A text that begins with '{' or '[' is a call too, if it is well-formed and
  // names one of the request's tools.
  bool without_tag = false;
  // Where it is given, what stands between the tag and the first '{' is a
  // header, and the object is the arguments alone. None: it is no call.
  std::optional<CallHeader> (*read_header)(std::string_view header) = nullptr;
};

// `tools`: names of the request's tools.
std::unique_ptr<OutputParser> MakeJsonCalls(ParsedOutput& out,
                                            JsonCallWords words,
                                            std::vector<std::string> tools);

}  // namespace millrace::handlers
