// From the text of a completion to what it means: content, reasoning, tool
// calls. Each format of a model family is one OutputParser.
//
//   ParsedOutput out;
//   auto parser = MakeOutputParser(spec, out);     // formats.h
//   for (char byte : text) parser->Step(byte);
//   ... out.Take() ...
//   parser->End();
//   ... out.Take() ...
//
// Parsers read byte by byte, so that the cuts of a stream never change what
// they find. Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "handlers/messages.h"

namespace millrace::handlers {

// What a parser found, as deltas. White space between and behind tool calls is
// no content. Of a call whose place is beyond `most_calls`, nothing is kept.
class ParsedOutput {
 public:
  explicit ParsedOutput(int32_t most_calls = INT32_MAX)
      : most_calls_(most_calls) {}

  void Content(std::string_view text);
  void Reasoning(std::string_view text);
  // `name` is not empty; without an id, the codec makes one.
  void BeginCall(std::string_view name, std::string_view id = {});
  // The next part of the arguments of that call, JSON as the model wrote it.
  void Arguments(std::string_view text);
  // There is no more: white space that was held back is content if there was
  // no call.
  void Finish();

  // All deltas since the last call, in order, neighbours of a kind joined.
  std::vector<OutputDelta> Take();
  // White space of the content that is held back.
  size_t num_spaces() const { return space_.size(); }

 private:
  OutputDelta& Last(DeltaKind kind);

  const int32_t most_calls_;
  std::vector<OutputDelta> deltas_;
  std::string space_;  // at the end of the content so far
  int32_t num_calls_ = 0;
};

class OutputParser {
 public:
  explicit OutputParser(ParsedOutput& out) : out_(out) {}
  virtual ~OutputParser() = default;
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  virtual void Step(char byte) = 0;
  // The completion is over: what was held back goes out.
  virtual void End() = 0;
  // How many of the last bytes may still become content. Those before are given
  // out, or dropped: tags, headers, what stands between calls.
  virtual size_t num_held() const = 0;

 protected:
  ParsedOutput& out_;  // outlives the parser
};

inline bool IsJsonSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

}  // namespace millrace::handlers
