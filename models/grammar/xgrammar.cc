// The library's objects are counted references; a grammar keeps its vocabulary
// alive, a matcher its grammar. The library itself is never closed, since its
// types are registered for the life of the process.
//
// The library takes any bytes in the shape of UTF-8 for a character, also
// surrogates, overlong forms and what lies beyond U+10FFFF. Those are forbidden
// here: a client would see replacement characters, more than were counted.
#include "models/grammar/xgrammar.h"

#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/grammar/forced_token.h"
#include "models/grammar/tvm_ffi.h"

namespace millrace::models {
namespace {

// Their place in Methods::handles, and their names.
enum Method : size_t {
  kNewVocabulary,
  kNewCompiler,
  kCompileSchema,
  kCompileRegex,
  kCompileEbnf,
  kCompileLark,
  kCompileTag,
  kSerialize,
  kDeserialize,
  kMemory,
  kNewMatcher,
  kFill,
  kAccept,
  kRollback,
  kIsTerminated,
  kNumMethods,
};
struct MethodName {
  const char* type;
  const char* name;
};
constexpr MethodName kMethodNames[kNumMethods] = {
    {"TokenizerInfo", "__ffi_init__"},
    {"GrammarCompiler", "__ffi_init__"},
    {"GrammarCompiler", "compile_json_schema"},
    {"GrammarCompiler", "compile_regex"},
    {"GrammarCompiler", "compile_grammar_from_strings"},
    {"GrammarCompiler", "compile_lark"},
    {"GrammarCompiler", "compile_structural_tag"},
    {"CompiledGrammar", "serialize_json"},
    {"CompiledGrammar", "deserialize_json"},
    {"CompiledGrammar", "memory_size_bytes"},
    {"GrammarMatcher", "__ffi_init__"},
    {"GrammarMatcher", "fill_next_token_bitmask"},
    {"GrammarMatcher", "accept_token"},
    {"GrammarMatcher", "rollback"},
    {"GrammarMatcher", "is_terminated"},
};

// The open library.
struct Library {
  TvmFfi ffi;
  FfiFunction methods[kNumMethods] = {};
  FfiFunction new_array = nullptr;

  StatusOr<FfiValue> Do(Method method,
                        std::initializer_list<const FfiValue*> values) const {
    FfiAny arguments[8];
    size_t count = 0;
    for (const FfiValue* value : values) arguments[count++] = value->any();
    return Call(ffi, methods[method], std::span(arguments, count));
  }
  StatusOr<FfiValue> Array(std::span<const FfiValue> values) const {
    std::vector<FfiAny> arguments;
    arguments.reserve(values.size());
    for (const FfiValue& value : values) arguments.push_back(value.any());
    return Call(ffi, new_array, arguments);
  }
};

struct Vocabulary;

class Matcher final : public GrammarMatcher {
 public:
  // Without an object only the stop ids are allowed.
  Matcher(std::shared_ptr<const Vocabulary> vocabulary, FfiValue object,
          bool is_valid);
  void Fill(std::span<uint32_t> mask) override;
  bool Accept(int32_t id) override;
  void Rollback(int32_t n) override;
  std::vector<int32_t> ForcedTokens(int32_t most) override;

  // False, with the mask in any state, if no token leads on.
  bool FillFromGrammar(std::span<uint32_t> mask);

 private:
  bool IsOver() const;  // a token that ends the completion was accepted
  // Tokens whose bytes would end no character that these begin.
  void ForbidBehind(uint8_t lead, std::span<uint32_t> mask) const;

  const std::shared_ptr<const Vocabulary> vocabulary_;
  FfiValue object_;
  const bool is_valid_;
  // Last bytes of the accepted tokens.
  std::vector<uint8_t> last_bytes_;
  // The mask of the next token, where ForcedTokens filled it.
  std::vector<uint32_t> next_;
  bool next_is_known_ = false;
};

// First bytes of a character behind which not all continuations are valid, and
// those that are not (RFC 3629, section 4).
struct HalfValid {
  uint8_t lead;
  uint8_t first_wrong, last_wrong;
};
constexpr HalfValid kHalfValid[] = {{0xe0, 0x80, 0x9f},
                                    {0xed, 0xa0, 0xbf},
                                    {0xf0, 0x80, 0x8f},
                                    {0xf4, 0x90, 0xbf}};

bool IsWrongBehind(uint8_t lead, uint8_t next) {
  return std::ranges::any_of(kHalfValid, [&](const HalfValid& half) {
    return half.lead == lead && half.first_wrong <= next &&
           next <= half.last_wrong;
  });
}

// Whether bytes can stand in valid UTF-8, wherever they begin and end.
bool CanBeUtf8(const std::string& text) {
  uint8_t before = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0xc0 || byte == 0xc1 || byte > 0xf4) return false;
    if (IsWrongBehind(before, byte)) return false;
    before = byte;
  }
  return true;
}

class Grammar final : public TokenGrammar {
 public:
  Grammar(std::shared_ptr<const Vocabulary> vocabulary, FfiValue object,
          int64_t bytes)
      : vocabulary_(std::move(vocabulary)),
        object_(std::move(object)),
        bytes_(bytes) {}

  std::unique_ptr<Matcher> MakeMatcher() const;
  std::unique_ptr<GrammarMatcher> NewMatcher() const override {
    return MakeMatcher();
  }
  int64_t memory_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const FfiValue object_;
  const int64_t bytes_;
};

// Shared: by the compiler of a model and by its grammars that still run.
struct Vocabulary final : XgrammarVocabulary,
                          std::enable_shared_from_this<Vocabulary> {
  std::shared_ptr<const Library> library;
  FfiValue info;
  int32_t vocab_size = 0;
  std::vector<int32_t> stop_ids;
  // Of each token with a text, else 0.
  std::vector<uint8_t> first_bytes, last_bytes;
  ForcedTokenFinder forced;

  StatusOr<std::string> Compile(const GrammarSource& source) const override;
  StatusOr<std::shared_ptr<const TokenGrammar>> Load(
      const std::string& compiled) const override;
};

StatusOr<std::string> Vocabulary::Compile(const GrammarSource& source) const {
  const TvmFfi& ffi = library->ffi;
  const FfiValue one(int64_t{1}), unbounded(int64_t{-1});
  const FfiValue yes(true), no(false), none;
  ASSIGN_OR_RETURN(const FfiValue compiler,
                   library->Do(kNewCompiler, {&info, &one, &no, &unbounded}));
  const FfiValue text = FfiValue::String(ffi, source.text);
  ASSIGN_OR_RETURN(const FfiValue empty, library->Array({}));
  const FfiValue root = FfiValue::String(ffi, "root");
  const FfiValue space(kMaxJsonWhiteSpace);
  const auto compile = [&]() -> StatusOr<FfiValue> {
    switch (source.kind) {
      case GrammarSource::Kind::kJsonSchema:
        // schema, any white space, indent, separators, strict, most white
        // space, any order
        return library->Do(kCompileSchema, {&compiler, &text, &yes, &none,
                                            &none, &no, &space, &no});
      case GrammarSource::Kind::kRegex:
        return library->Do(kCompileRegex, {&compiler, &text});
      case GrammarSource::Kind::kEbnf:
        return library->Do(kCompileEbnf, {&compiler, &text, &root});
      case GrammarSource::Kind::kLark:
        return library->Do(kCompileLark, {&compiler, &text, &empty, &empty});
      case GrammarSource::Kind::kStructuralTag:
        return library->Do(kCompileTag, {&compiler, &text});
    }
    return InvalidArgument("there is no such kind of grammar");
  };
  ASSIGN_OR_RETURN(const FfiValue grammar, compile());
  ASSIGN_OR_RETURN(const FfiValue bytes, library->Do(kSerialize, {&grammar}));
  return bytes.text();
}

StatusOr<std::shared_ptr<const TokenGrammar>> Vocabulary::Load(
    const std::string& compiled) const {
  const FfiValue text = FfiValue::String(library->ffi, compiled);
  ASSIGN_OR_RETURN(FfiValue object, library->Do(kDeserialize, {&text, &info}));
  ASSIGN_OR_RETURN(const FfiValue bytes, library->Do(kMemory, {&object}));
  auto grammar = std::make_shared<const Grammar>(
      shared_from_this(), std::move(object), bytes.number());
  std::vector<uint32_t> mask((static_cast<size_t>(vocab_size) + 31) / 32);
  if (!grammar->MakeMatcher()->FillFromGrammar(mask)) {
    return InvalidArgument("no text fits it; loosen what it asks for");
  }
  return grammar;
}

std::unique_ptr<Matcher> Grammar::MakeMatcher() const {
  const FfiValue none, no(false), unbounded(int64_t{-1});
  StatusOr<FfiValue> object = vocabulary_->library->Do(
      kNewMatcher, {&object_, &none, &no, &unbounded, &none});
  const bool is_valid = object.ok();
  return std::make_unique<Matcher>(
      vocabulary_, is_valid ? std::move(object).value() : FfiValue(), is_valid);
}

Matcher::Matcher(std::shared_ptr<const Vocabulary> vocabulary, FfiValue object,
                 bool is_valid)
    : vocabulary_(std::move(vocabulary)),
      object_(std::move(object)),
      is_valid_(is_valid) {}

void Matcher::Fill(std::span<uint32_t> mask) {
  if (next_is_known_ && mask.size() == next_.size()) {
    std::ranges::copy(next_, mask.begin());
    return;
  }
  if (FillFromGrammar(mask)) return;
  std::ranges::fill(mask, 0);
  for (const int32_t id : vocabulary_->stop_ids) {
    mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
}

bool Matcher::IsOver() const {
  if (!is_valid_) return true;
  const auto over = vocabulary_->library->Do(kIsTerminated, {&object_});
  return !over.ok() || over->truth();
}

bool Matcher::FillFromGrammar(std::span<uint32_t> mask) {
  const Library& library = *vocabulary_->library;
  if (IsOver()) return false;
  auto words = static_cast<int64_t>(mask.size());
  DLTensor tensor = {.data = mask.data(),
                     .device = {kDLCPU, 0},
                     .ndim = 1,
                     .dtype = {kDLInt, 32, 1},
                     .shape = &words,
                     .strides = nullptr,
                     .byte_offset = 0};
  const FfiValue target = FfiValue::Tensor(&tensor);
  const FfiValue row(int64_t{0}), no(false);
  const auto filled = library.Do(kFill, {&object_, &target, &row, &no});
  if (!filled.ok()) return false;
  if (!filled->truth()) std::ranges::fill(mask, ~0u);  // all are allowed
  ForbidBehind(last_bytes_.empty() ? 0 : last_bytes_.back(), mask);
  const int32_t rest = vocabulary_->vocab_size % 32;
  if (rest != 0) mask.back() &= (1u << rest) - 1;
  return std::ranges::any_of(mask, [](uint32_t word) { return word != 0; });
}

void Matcher::ForbidBehind(uint8_t lead, std::span<uint32_t> mask) const {
  if (std::ranges::none_of(kHalfValid, [&](const HalfValid& half) {
        return half.lead == lead;
      })) {
    return;
  }
  const std::vector<uint8_t>& firsts = vocabulary_->first_bytes;
  for (size_t id = 0; id < firsts.size(); ++id) {
    if (IsWrongBehind(lead, firsts[id])) mask[id / 32] &= ~(1u << (id % 32));
  }
}

bool Matcher::Accept(int32_t id) {
  if (IsOver()) return false;  // the library would complain on stderr
  const auto index = static_cast<size_t>(id);
  const bool has_text = index < vocabulary_->first_bytes.size();
  if (has_text && !last_bytes_.empty() &&
      IsWrongBehind(last_bytes_.back(), vocabulary_->first_bytes[index])) {
    return false;
  }
  const FfiValue token(int64_t{id}), no(false);
  const auto accepted =
      vocabulary_->library->Do(kAccept, {&object_, &token, &no});
  if (!accepted.ok() || !accepted->truth()) return false;
  next_is_known_ = false;
  last_bytes_.push_back(has_text ? vocabulary_->last_bytes[index] : 0);
  return true;
}

void Matcher::Rollback(int32_t n) {
  if (!is_valid_ || n <= 0) return;
  const FfiValue count(int64_t{n});
  const auto done = vocabulary_->library->Do(kRollback, {&object_, &count});
  CHECK(done.ok(), "only accepted tokens are taken back");
  next_is_known_ = false;
  last_bytes_.resize(last_bytes_.size() - static_cast<size_t>(n));
}

std::vector<int32_t> Matcher::ForcedTokens(int32_t most) {
  std::vector<int32_t> ids;
  while (static_cast<int32_t>(ids.size()) < most) {
    if (!next_is_known_) {
      next_.resize((static_cast<size_t>(vocabulary_->vocab_size) + 31) / 32);
      next_is_known_ = FillFromGrammar(next_);
      if (!next_is_known_) break;
    }
    const std::optional<int32_t> id = vocabulary_->forced.Find(next_);
    if (!id || !Accept(*id)) break;
    ids.push_back(*id);
  }
  Rollback(static_cast<int32_t>(ids.size()));
  return ids;
}

class OpenXgrammar final : public Xgrammar {
 public:
  explicit OpenXgrammar(Library library)
      : library_(std::make_shared<const Library>(library)) {}

  StatusOr<std::shared_ptr<const XgrammarVocabulary>> MakeVocabulary(
      const TokenTexts& tokens) const override {
    const TvmFfi& ffi = library_->ffi;
    std::vector<FfiValue> texts, stops;
    texts.reserve(tokens.texts.size());
    auto vocabulary = std::make_shared<Vocabulary>();
    std::vector<std::string> used;
    for (const std::string& text : tokens.texts) {
      const bool counts = !text.empty() && CanBeUtf8(text);
      used.push_back(counts ? text : "");
      texts.push_back(FfiValue::Bytes(ffi, used.back()));
      vocabulary->first_bytes.push_back(counts ? text.front() : 0);
      vocabulary->last_bytes.push_back(counts ? text.back() : 0);
    }
    for (const int32_t id : tokens.stop_ids) stops.emplace_back(int64_t{id});
    ASSIGN_OR_RETURN(const FfiValue text_list, library_->Array(texts));
    ASSIGN_OR_RETURN(const FfiValue stop_list, library_->Array(stops));
    const FfiValue raw(int64_t{0}), size(int64_t{tokens.vocab_size}), no(false);
    vocabulary->library = library_;
    vocabulary->forced = ForcedTokenFinder(std::move(used));
    vocabulary->vocab_size = tokens.vocab_size;
    vocabulary->stop_ids = tokens.stop_ids;
    ASSIGN_OR_RETURN(vocabulary->info,
                     library_->Do(kNewVocabulary,
                                  {&text_list, &raw, &size, &stop_list, &no}));
    return vocabulary;
  }

 private:
  const std::shared_ptr<const Library> library_;
};

StatusOr<Library> OpenIn(const std::string& folder) {
  Library library;
  ASSIGN_OR_RETURN(library.ffi, TvmFfi::Open(folder + "/libtvm_ffi.so"));
  // It needs libtvm_ffi.so by name, which is loaded by now.
  const std::string path = folder + "/libxgrammar_bindings.so";
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    return FailedPrecondition(::dlerror());
  }
  for (size_t i = 0; i < kNumMethods; ++i) {
    const std::string type =
        std::string("xgrammar.tvm_ffi_binding.") + kMethodNames[i].type;
    library.methods[i] = FindMethod(library.ffi, type, kMethodNames[i].name);
    if (library.methods[i] == nullptr) {
      return FailedPrecondition(path + " has no method " + type + "." +
                                kMethodNames[i].name);
    }
  }
  const FfiBytes array = {"ffi.Array", 9};
  if (library.ffi.global(&array, &library.new_array) != 0 ||
      library.new_array == nullptr) {
    return FailedPrecondition(folder + "/libtvm_ffi.so has no ffi.Array");
  }
  return library;
}

// Of this program, without a slash at the end; "." if it is not known.
std::string ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return ".";
  const std::string text(path, static_cast<size_t>(size));
  return text.substr(0, text.rfind('/'));
}

StatusOr<Library> OpenAnywhere() {
  const std::string installed = ProgramFolder() + "/../lib/millrace";
  if (::access((installed + "/libxgrammar_bindings.so").c_str(), R_OK) == 0) {
    return OpenIn(installed);
  }
  return OpenIn(MILLRACE_XGRAMMAR_FOLDER);
}

}  // namespace

StatusOr<std::shared_ptr<const Xgrammar>> Xgrammar::Open() {
  // Opening it twice would register its types twice.
  static std::mutex mu;
  static std::shared_ptr<const Xgrammar> opened;
  const std::lock_guard lock(mu);
  if (opened == nullptr) {
    ASSIGN_OR_RETURN(const Library library, OpenAnywhere());
    opened = std::make_shared<OpenXgrammar>(library);
  }
  return opened;
}

}  // namespace millrace::models
