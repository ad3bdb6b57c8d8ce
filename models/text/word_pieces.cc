// utf8proc knows the characters. The tables from which the package tokenizers
// takes control characters, punctuation and marks are those of an older
// Unicode: characters that became one of these since are listed here, for they
// are left as they are where models are trained.
#include "models/text/word_pieces.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <utility>

#include "models/text/nfc.h"

namespace millrace::models {
namespace {

using Code = utf8proc_int32_t;

struct Range {
  Code first;
  Code last;
};

constexpr Range kNewControls[] = {
    {0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};
constexpr Range kNewPunctuation[] = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},
    {0xc77, 0xc77},     {0xc84, 0xc84},     {0x1b7d, 0x1b7e},
    {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},   {0x10ead, 0x10ead},
    {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x1144b, 0x1144f},
    {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c},
    {0x116b9, 0x116b9}, {0x1183b, 0x1183b}, {0x11944, 0x11946},
    {0x119e2, 0x119e2}, {0x11a3f, 0x11a46}, {0x11a9a, 0x11a9c},
    {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45},
    {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f},
    {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a},
    {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f}};
constexpr Range kNewMarks[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8e1},
    {0x9fe, 0x9fe},     {0xafa, 0xaff},     {0xb55, 0xb55},
    {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xd00, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},
    {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfb},   {0xa82c, 0xa82c},
    {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},
    {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x1123e}, {0x11241, 0x11241},
    {0x1133b, 0x1133b}, {0x11438, 0x1143f}, {0x11442, 0x11444},
    {0x11446, 0x11446}, {0x1145e, 0x1145e}, {0x1182f, 0x11837},
    {0x11839, 0x1183a}, {0x1193b, 0x1193c}, {0x1193e, 0x1193e},
    {0x11943, 0x11943}, {0x119d4, 0x119d7}, {0x119da, 0x119db},
    {0x119e0, 0x119e0}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38},
    {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a56},
    {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a99},
    {0x11c30, 0x11c36}, {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f},
    {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3},
    {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a},
    {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97},
    {0x11ef3, 0x11ef4}, {0x11f00, 0x11f01}, {0x11f36, 0x11f3a},
    {0x11f40, 0x11f40}, {0x11f42, 0x11f42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16f4f, 0x16f4f}, {0x16fe4, 0x16fe4},
    {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46}, {0x1e000, 0x1e006},
    {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024},
    {0x1e026, 0x1e02a}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e944, 0x1e94a}};
// Characters that are words of their own. The gap after U+2B81F is in the
// original, too.
constexpr Range kIdeographs[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},
                                 {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                                 {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                 {0x2f800, 0x2fa1f}};

bool IsIn(std::span<const Range> ranges, Code code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](Code c, const Range& r) { return c < r.first; });
  return after != ranges.begin() && code <= (after - 1)->last;
}

bool IsSpace(Code code) {
  return (code >= '\t' && code <= '\r') || code == ' ' || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

bool IsControl(Code code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const utf8proc_category_t category = utf8proc_category(code);
  return (category == UTF8PROC_CATEGORY_CC ||
          category == UTF8PROC_CATEGORY_CF ||
          category == UTF8PROC_CATEGORY_CO) &&
         !IsIn(kNewControls, code);
}

bool IsPunctuation(Code code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  if (code == 0x166d || code == 0x111c9) return true;  // once, now symbol, mark
  const utf8proc_category_t category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO &&
         !IsIn(kNewPunctuation, code);
}

bool IsMark(Code code) {
  if (code == 0x1734) return true;  // once, spacing now
  return utf8proc_category(code) == UTF8PROC_CATEGORY_MN &&
         !IsIn(kNewMarks, code);
}

// Takes the first character off; the text is valid UTF-8 and not empty.
Code Next(std::string_view& text) {
  Code code = 0;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &code);
  CHECK(bytes > 0, "text to tokenize is valid UTF-8");
  text.remove_prefix(static_cast<size_t>(bytes));
  return code;
}

void Append(Code code, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(code, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

std::string Clean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Code code = Next(text);
    if (code == 0 || code == 0xfffd || IsControl(code)) continue;
    IsSpace(code) ? out.push_back(' ') : Append(code, out);
  }
  return out;
}

std::string SpaceIdeographs(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Code code = Next(text);
    const bool alone = IsIn(kIdeographs, code);
    if (alone) out.push_back(' ');
    Append(code, out);
    if (alone) out.push_back(' ');
  }
  return out;
}

std::string StripAccents(std::string_view text) {
  const std::string apart = ToNfd(text);
  std::string_view left = apart;
  std::string out;
  out.reserve(apart.size());
  while (!left.empty()) {
    const Code code = Next(left);
    if (!IsMark(code)) Append(code, out);
  }
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Code code = Next(text);
    Append(utf8proc_tolower(code), out);
    // "İ" is the one letter that has two small ones.
    if (code == 0x130) {
      out.back() = 'i';
      Append(0x307, out);
    }
  }
  return out;
}

// Calls `take(begin, end)` for each word of normal text, in its order: what
// stands between white space, and each punctuation mark.
template <typename Take>
void ForEachWord(std::string_view all, const Take& take) {
  std::string_view left = all;
  size_t begin = 0;  // of the word that is being read
  while (!left.empty()) {
    const size_t at = all.size() - left.size();
    const Code code = Next(left);
    const bool space = IsSpace(code);
    if (!space && !IsPunctuation(code)) continue;
    if (at > begin) take(begin, at);
    begin = all.size() - left.size();
    if (!space) take(at, begin);
  }
  if (all.size() > begin) take(begin, all.size());
}

}  // namespace

StatusOr<std::unique_ptr<const WordPieces>> WordPieces::Create(
    const Vocabulary& vocabulary) {
  std::unique_ptr<WordPieces> out(new WordPieces());
  out->rules_ = vocabulary.word_pieces;
  out->unk_id_ = vocabulary.unk_id;
  if (out->unk_id_ < 0 ||
      static_cast<size_t>(out->unk_id_) >= vocabulary.tokens.size()) {
    return InvalidArgument(
        "the vocabulary names no token for words that it lacks (unk_token)");
  }
  const std::string& prefix = out->rules_.continuing_prefix;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    if (kind == TokenKind::kUnused) continue;
    const std::string_view token = vocabulary.tokens[id];
    const bool is_continued = !prefix.empty() && token.starts_with(prefix) &&
                              token.size() > prefix.size();
    const auto id32 = static_cast<int32_t>(id);
    // "##" itself, and "##a" as it reads, may begin a word as well.
    out->first_.try_emplace(token, id32);
    if (is_continued) {
      out->continued_.try_emplace(token.substr(prefix.size()), id32);
    } else if (prefix.empty()) {
      out->continued_.try_emplace(token, id32);
    }
    out->longest_ = std::max(out->longest_, token.size());
  }
  return std::unique_ptr<const WordPieces>(std::move(out));
}

std::string WordPieces::Normalise(std::string_view text) const {
  std::string out = rules_.clean_text ? Clean(text) : std::string(text);
  const bool is_ascii = std::all_of(out.begin(), out.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x80;
  });
  if (rules_.space_ideographs && !is_ascii) out = SpaceIdeographs(out);
  if (rules_.strip_accents && !is_ascii) out = StripAccents(out);
  if (rules_.lowercase) out = Lower(out);
  return out;
}

void WordPieces::Encode(std::string_view text,
                        std::vector<int32_t>& out) const {
  const std::string normal = Normalise(text);
  ForEachWord(normal, [&](size_t begin, size_t end) {
    EncodeWord(std::string_view(normal).substr(begin, end - begin), out);
  });
}

void WordPieces::EncodeSpans(std::string_view text,
                             std::vector<TokenSpan>& out) const {
  // Each character becomes what it is alone: only marks that are in no
  // canonical order and are not dropped could make another text of the whole.
  std::string normal;
  std::vector<std::pair<size_t, size_t>> places;  // of each byte, in `text`
  for (std::string_view left = text; !left.empty();) {
    const size_t begin = text.size() - left.size();
    Next(left);
    const size_t end = text.size() - left.size();
    normal += Normalise(text.substr(begin, end - begin));
    places.resize(normal.size(), {begin, end});
  }
  std::vector<int32_t> ids;
  std::vector<size_t> lengths;
  ForEachWord(normal, [&](size_t begin, size_t end) {
    ids.clear();
    lengths.clear();
    EncodeWord(std::string_view(normal).substr(begin, end - begin), ids,
               &lengths);
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t last = begin + lengths[i] - 1;
      out.push_back({ids[i], places[begin].first, places[last].second});
      begin += lengths[i];
    }
  });
}

void WordPieces::EncodeWord(std::string_view word, std::vector<int32_t>& out,
                            std::vector<size_t>* lengths) const {
  const size_t before = out.size();
  const auto unknown = [&] {
    out.resize(before);
    out.push_back(unk_id_);
    if (lengths != nullptr) *lengths = {word.size()};
  };
  const auto is_start = [&](size_t at) {
    return (static_cast<uint8_t>(word[at]) & 0xc0) != 0x80;
  };
  int64_t characters = 0;
  for (size_t at = 0; at < word.size(); ++at) characters += is_start(at);
  if (characters > rules_.max_word_characters) {
    return unknown();
  }
  for (size_t at = 0; at < word.size();) {
    const auto& tokens = at == 0 ? first_ : continued_;
    size_t bytes = std::min(word.size() - at, longest_);
    auto found = tokens.end();
    for (; bytes > 0; --bytes) {
      if (at + bytes < word.size() && !is_start(at + bytes)) continue;
      found = tokens.find(word.substr(at, bytes));
      if (found != tokens.end()) break;
    }
    if (bytes == 0) {  // the whole word is unknown
      return unknown();
    }
    out.push_back(found->second);
    if (lengths != nullptr) lengths->push_back(bytes);
    at += bytes;
  }
}

}  // namespace millrace::models
