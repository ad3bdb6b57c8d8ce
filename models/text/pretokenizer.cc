// Pre-tokenisers by PCRE2. \s is not used, as PCRE2 counts U+180E as a space
// and Unicode (with the tokenizers that models are trained with) does not; and
// digits are split off before GPT-2's rule runs, so that its look-ahead sees
// the end of text where a digit stands.
#include "models/text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/base/utf8.h"

namespace millrace::models {
namespace {

// S and N stand for a space and for anything else; see above.
#define S "\\p{White_Space}"
#define N "\\P{White_Space}"
#define ENGLISH_ENDINGS "(?:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES_AND_SPACES S "*[\\r\\n]+|" S "+(?!" N ")|" S "+"

constexpr char kDigit[] = "\\p{N}";
constexpr char kGpt2[] = ENGLISH_ENDINGS
    "| ?\\p{L}+| ?\\p{N}+| ?[^" S "\\p{L}\\p{N}]+|" S "+(?!" N ")|" S "+";
constexpr char kLlama3[] =
    "(?i:" ENGLISH_ENDINGS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" S
    "\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES;
constexpr char kQwen2[] =
    "(?i:" ENGLISH_ENDINGS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" S
    "\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES;
// Words end where a capital follows a small letter.
#define MARK "[^\\r\\n\\p{L}\\p{N}]?"
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SIGNS_AND_SPACES " ?[^" S "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES_AND_SPACES
constexpr char kTekken[] = MARK CAPITALS "*" SMALL "+|" MARK CAPITALS "+" SMALL
                                         "*|\\p{N}|" SIGNS_AND_SPACES;
constexpr char kGpt4o[] = MARK CAPITALS
    "*" SMALL "+(?i:" ENGLISH_ENDINGS ")?|" MARK CAPITALS "+" SMALL
    "*(?i:" ENGLISH_ENDINGS ")?|\\p{N}{1,3}|" SIGNS_AND_SPACES;
#undef MARK
#undef CAPITALS
#undef SMALL
#undef SIGNS_AND_SPACES
#undef S
#undef N
#undef ENGLISH_ENDINGS
#undef LINES_AND_SPACES

struct Rule {
  std::string_view name;
  const char* pattern;
  bool digits_apart;        // each digit is a piece of its own
  bool whole_pieces_first;  // see the header
};

// The names are those that GGUF files carry in tokenizer.ggml.pre.
constexpr Rule kRules[] = {
    {"gpt-2", kGpt2, false, false},
    {"gpt2", kGpt2, false, false},
    {"phi-2", kGpt2, false, false},
    {"olmo", kGpt2, false, false},
    {"smollm", kGpt2, true, false},
    {"starcoder", kGpt2, true, false},
    {"refact", kGpt2, true, false},
    {"codeshell", kGpt2, true, false},
    {"llama-bpe", kLlama3, false, true},
    {"llama3", kLlama3, false, true},
    {"llama-v3", kLlama3, false, true},
    {"dbrx", kLlama3, false, false},
    {"smaug-bpe", kLlama3, false, false},
    {"tekken", kTekken, false, true},
    {"gpt-4o", kGpt4o, false, false},
    {"llama4", kGpt4o, false, false},
    {"qwen2", kQwen2, false, false},
    {"deepseek-r1-qwen", kQwen2, false, false},
};

// Steps of matching a foreign expression may take, PCRE2's own default.
constexpr uint32_t kForeignSteps = 10'000'000;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const {
    pcre2_match_data_free(match);
  }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const {
    pcre2_match_context_free(context);
  }
};

// One compiled expression.
class Expression {
 public:
  // Foreign ones are bounded in steps and may be wrong.
  static StatusOr<Expression> Create(const std::string& pattern,
                                     bool is_foreign) {
    int error = 0;
    size_t at = 0;
    Expression out;
    out.code_.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, nullptr));
    out.context_.reset(pcre2_match_context_create(nullptr));
    if (out.code_ == nullptr && is_foreign) {
      PCRE2_UCHAR why[160] = {};
      pcre2_get_error_message(error, why, sizeof why);
      return InvalidArgument("the pre-tokeniser's expression '" +
                             Shortened(pattern, 300) + "' is wrong at offset " +
                             std::to_string(at) + ": " +
                             reinterpret_cast<const char*>(why));
    }
    if (out.code_ == nullptr || out.context_ == nullptr) {
      return Internal("PCRE2 refused a pre-tokeniser's expression, error " +
                      std::to_string(error) + " at offset " +
                      std::to_string(at));
    }
    // Every rule of ours is linear, but a run of spaces may step back over its
    // whole length once.
    pcre2_set_match_limit(out.context_.get(),
                          is_foreign ? kForeignSteps : UINT32_MAX);
    // Where memory may not be made executable PCRE2 interprets instead.
    pcre2_jit_compile(out.code_.get(), PCRE2_JIT_COMPLETE);
    return out;
  }

  // Calls gap(bytes) and match(bytes) for everything in the text, in order.
  template <typename Gap, typename Match>
  void Split(std::string_view text, const Gap& gap, const Match& match) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    size_t at = 0;    // end of what has been given out
    size_t from = 0;  // where the next match may begin
    while (data != nullptr && from < text.size()) {
      const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
      int found = pcre2_match(code_.get(), subject, text.size(), from,
                              PCRE2_NO_UTF_CHECK, data.get(), context_.get());
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_.get(), subject, text.size(), from,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                            context_.get());
      }
      if (found < 0) break;  // no match: the rest is a gap
      const size_t* bounds = pcre2_get_ovector_pointer(data.get());
      if (bounds[0] < from || bounds[1] < bounds[0]) break;
      if (bounds[0] > at) gap(text.substr(at, bounds[0] - at));
      at = from = bounds[1];
      if (bounds[0] == bounds[1]) {  // cuts, and the search goes on behind
        do {
          ++from;
        } while (from < text.size() &&
                 (static_cast<uint8_t>(text[from]) & 0xc0) == 0x80);
      } else {
        match(text.substr(bounds[0], bounds[1] - bounds[0]));
      }
    }
    if (at < text.size()) gap(text.substr(at));
  }

 private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
};

}  // namespace

struct Pretokenizer::Impl {
  struct Step {
    Expression expression;
    bool drop_gaps;
  };
  using Sink = std::function<void(std::string_view)>;

  std::vector<Step> steps;
  bool whole_pieces_first;

  void Cut(size_t step, std::string_view text, const Sink& sink) const {
    if (step == steps.size()) return sink(text);
    const auto next = [&](std::string_view part) { Cut(step + 1, part, sink); };
    const auto drop = [](std::string_view) {};
    if (steps[step].drop_gaps) {
      steps[step].expression.Split(text, drop, next);
    } else {
      steps[step].expression.Split(text, next, next);
    }
  }
};

SplitRule Gpt2Rule() { return {.pattern = kGpt2}; }

Pretokenizer::Pretokenizer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
Pretokenizer::~Pretokenizer() = default;

StatusOr<std::unique_ptr<Pretokenizer>> Pretokenizer::Create(
    std::string_view name) {
  std::string known;
  for (const Rule& rule : kRules) {
    if (rule.name == name) {
      auto impl = std::make_unique<Impl>();
      impl->whole_pieces_first = rule.whole_pieces_first;
      for (const char* pattern : {kDigit, rule.pattern}) {
        if (pattern == kDigit && !rule.digits_apart) continue;
        ASSIGN_OR_RETURN(Expression made, Expression::Create(pattern, false));
        impl->steps.push_back({std::move(made), false});
      }
      return std::unique_ptr<Pretokenizer>(new Pretokenizer(std::move(impl)));
    }
    known.append(known.empty() ? "" : ", ").append(rule.name);
  }
  return InvalidArgument("pre-tokeniser '" + std::string(name) +
                         "' is not supported; known are " + known);
}

StatusOr<std::unique_ptr<Pretokenizer>> Pretokenizer::Create(
    std::span<const SplitRule> rules, bool whole_pieces_first) {
  auto impl = std::make_unique<Impl>();
  impl->whole_pieces_first = whole_pieces_first;
  for (const SplitRule& rule : rules) {
    ASSIGN_OR_RETURN(Expression made, Expression::Create(rule.pattern, true));
    impl->steps.push_back({std::move(made), rule.drop_gaps});
  }
  return std::unique_ptr<Pretokenizer>(new Pretokenizer(std::move(impl)));
}

void Pretokenizer::Cut(
    std::string_view text,
    const std::function<void(std::string_view)>& sink) const {
  if (!text.empty()) impl_->Cut(0, text, sink);
}

bool Pretokenizer::whole_pieces_first() const {
  return impl_->whole_pieces_first;
}

}  // namespace millrace::models
