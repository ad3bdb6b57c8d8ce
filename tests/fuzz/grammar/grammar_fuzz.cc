// Any bytes as a pattern, a grammar, a choice or a structural tag (the first
// byte says which): refused with a sentence, or translated into text that the
// child can be given and reads back.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "config/base/utf8.h"
#include "models/grammar/compile_child.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/pattern.h"

namespace {

using namespace millrace::models;  // NOLINT

void Require(bool condition, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "grammar_fuzz: %s\n", why);
  std::abort();
}

void CheckRefusal(const millrace::Status& status) {
  Require(status.code() == millrace::StatusCode::kInvalidArgument,
          "a bad text is INVALID_ARGUMENT");
  Require(!status.message().empty(), "a refusal says why");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr ConstraintKind kKinds[] = {
      ConstraintKind::kRegex, ConstraintKind::kGrammar, ConstraintKind::kChoice,
      ConstraintKind::kStructuralTag};
  const millrace::models::OutputConstraint constraint = {
      .kind = kKinds[data[0] % 4], .text = text};
  const auto source = SourceOf(constraint);
  if (!source.ok()) CheckRefusal(source.status());
  const auto sent = DecodeJob(EncodeJob(constraint, {{"a", ""}, 2, {1}}));
  Require(sent.ok() && sent->constraint == constraint,
          "the child gets what was sent");
  const auto pattern = JsonPattern(text);
  if (!pattern.ok()) CheckRefusal(pattern.status());
  const auto job = DecodeJob(text);
  if (!job.ok()) CheckRefusal(job.status());
  return 0;
}
