// One walk over the expression, which is not parsed further: what stands in a
// class or behind a backslash is told from what stands for itself.
#include "models/grammar/pattern.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace millrace::models {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
constexpr size_t kMaxWrittenBytes = 64 << 10;

// Spaces beyond ASCII, which the library counts to \S.
constexpr std::string_view kMoreSpaces =
    R"(\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000)";
// ECMA-262 alone has this one among them (WhiteSpace): neither \s nor \S is
// written as it, so that other engines agree.
constexpr std::string_view kOddSpace = R"(\ufeff)";

// A part that is not divided: a literal character, an escape, a class, or a
// sign of the expression's own grammar.
struct Piece {
  enum class Kind { kLiteral, kEscape, kClass, kSign };
  Kind kind;
  std::string_view text;
  size_t at;
};

Status At(size_t at, const std::string& why) {
  return InvalidArgument("the pattern at byte " + std::to_string(at) + " " +
                         why);
}

Status GreatCount(size_t at) {
  return At(at, "has a count above " + std::to_string(kMaxRepeats) +
                    ", which is not supported");
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
         (c >= 'A' && c <= 'F');
}

// Length of the escape at the beginning of `rest`, which has two bytes.
size_t EscapeSize(std::string_view rest) {
  const size_t digits = rest[1] == 'x' ? 2 : rest[1] == 'u' ? 4 : 0;
  size_t size = 2;
  while (size < 2 + digits && size < rest.size() && IsHex(rest[size])) ++size;
  return size == 2 + digits ? size : 2;
}

// Behind the class that is opened at `begin`; npos: it never ends.
size_t EndOfClass(std::string_view regex, size_t begin) {
  size_t end = begin + 1;
  if (end < regex.size() && regex[end] == '^') ++end;
  while (end < regex.size() && regex[end] != ']') {
    end += regex[end] == '\\' ? 2 : 1;
  }
  return end < regex.size() ? end + 1 : regex.npos;
}

StatusOr<std::vector<Piece>> Cut(std::string_view regex) {
  RETURN_IF_ERROR(CheckRegexRepeats(regex));
  if (regex.size() > kMaxPatternBytes) {
    return InvalidArgument("the pattern has " + std::to_string(regex.size()) +
                           " bytes but may have at most " +
                           std::to_string(kMaxPatternBytes));
  }
  using Kind = Piece::Kind;
  std::vector<Piece> pieces;
  size_t i = 0;
  const auto add = [&](Kind kind, size_t size) {
    pieces.push_back({kind, regex.substr(i, size), i});
    i += size;
  };
  while (i < regex.size()) {
    const char c = regex[i];
    if (c == '\\') {
      if (i + 1 == regex.size()) return At(i, "ends with a backslash");
      add(Kind::kEscape, EscapeSize(regex.substr(i)));
    } else if (c == '[') {
      const size_t end = EndOfClass(regex, i);
      if (end == regex.npos) return At(i, "opens a class that never ends");
      add(Kind::kClass, end - i);
    } else if (std::string_view("^$.|?*+(){}").find(c) !=
               std::string_view::npos) {
      add(Kind::kSign, 1);
    } else {
      add(Kind::kLiteral, 1);
    }
  }
  return pieces;
}

bool IsSign(const Piece& piece, std::string_view sign) {
  return piece.kind == Piece::Kind::kSign && piece.text == sign;
}

Status CheckNestedRepeats(std::string_view regex,
                          const std::vector<Piece>& pieces) {
  NestedRepeats repeats;
  size_t count_end = 0;
  for (const Piece& piece : pieces) {
    if (piece.at < count_end) continue;
    if (IsSign(piece, "(")) {
      repeats.Open();
    } else if (IsSign(piece, ")")) {
      repeats.Close();
    } else if (IsSign(piece, "{")) {
      ASSIGN_OR_RETURN(const size_t size,
                       repeats.Count(regex.substr(piece.at)));
      count_end = piece.at + size;
    } else if (piece.kind != Piece::Kind::kSign || piece.text == ".") {
      repeats.Item();
    }
  }
  return OkStatus();
}

Status CheckGroups(const std::vector<Piece>& pieces) {
  for (size_t i = 0; i + 2 < pieces.size(); ++i) {
    if (pieces[i].kind != Piece::Kind::kSign || pieces[i].text != "(" ||
        pieces[i + 1].kind != Piece::Kind::kSign || pieces[i + 1].text != "?") {
      continue;
    }
    const std::string_view sign = pieces[i + 2].text;
    const std::string_view next =
        i + 3 < pieces.size() ? pieces[i + 3].text : "";
    const bool plain =
        sign == ":" || (sign == "<" && next != "=" && next != "!");
    if (!plain) {
      return At(pieces[i].at,
                "has a group that looks ahead or behind or sets a flag, which "
                "is not supported");
    }
  }
  return OkStatus();
}

// The branches of the alternation that is not inside a group.
StatusOr<std::vector<std::vector<Piece>>> Branches(
    const std::vector<Piece>& pieces) {
  std::vector<std::vector<Piece>> branches(1);
  int depth = 0;
  for (const Piece& piece : pieces) {
    if (IsSign(piece, "(")) ++depth;
    if (IsSign(piece, ")") && --depth < 0) {
      return At(piece.at, "closes a group that is not open");
    }
    if (depth == 0 && IsSign(piece, "|")) {
      branches.emplace_back();
    } else {
      branches.back().push_back(piece);
    }
  }
  if (depth > 0)
    return InvalidArgument("the pattern has a group that never ends");
  return branches;
}

// Without its anchors; an anchor at another place is an error.
struct Branch {
  std::vector<Piece> pieces;
  bool from_start = false;
  bool to_end = false;
};
StatusOr<Branch> WithoutAnchors(std::vector<Piece> pieces) {
  Branch branch;
  if (!pieces.empty() && IsSign(pieces.back(), "$")) {
    branch.to_end = true;
    pieces.pop_back();
  }
  if (!pieces.empty() && IsSign(pieces.front(), "^")) {
    branch.from_start = true;
    pieces.erase(pieces.begin());
  }
  for (const Piece& piece : pieces) {
    if (IsSign(piece, "^") || IsSign(piece, "$")) {
      return At(piece.at, "has an anchor ('" + std::string(piece.text) +
                              "') that is not at its beginning or end, which "
                              "is not supported");
    }
  }
  branch.pieces = std::move(pieces);
  return branch;
}

// The character that an escape stands for, or -1 for a class such as \d.
int EscapedChar(std::string_view escape) {
  const char c = escape[1];
  if (escape.size() > 2) {
    return static_cast<int>(
        std::stoul(std::string(escape.substr(2)), nullptr, 16));
  }
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '0':
    case 'c':
      return 0;
    default:
      break;
  }
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      (c >= '1' && c <= '9');
  return letter ? -1 : static_cast<unsigned char>(c);
}

// Whether a class holds an escape such as \s.
bool HasEscape(std::string_view text, char letter) {
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') continue;
    if (text[i + 1] == letter) return true;
    ++i;
  }
  return false;
}

// \s and \S of a class, as ECMA-262 means them or narrower.
Status AppendClass(const Piece& piece, std::string& out) {
  const bool negated = piece.text.starts_with("[^");
  out += piece.text;
  if (HasEscape(piece.text, 's')) {
    out.insert(out.size() - 1, kMoreSpaces);
    if (negated) out.insert(out.size() - 1, kOddSpace);
  }
  if (negated || !HasEscape(piece.text, 'S') || HasEscape(piece.text, 's')) {
    return OkStatus();
  }
  return At(piece.at,
            "has '\\S' in a class, which is not supported; write the class as "
            "[^\\s…]");
}

Status AppendForJson(const Piece& piece, std::string& out) {
  if (piece.kind == Piece::Kind::kClass) return AppendClass(piece, out);
  if (IsSign(piece, ".")) {  // no line terminator of ECMA-262
    out += R"([^\u2028\u2029])";
    return OkStatus();
  }
  if (piece.text == "\\s") {
    out += "[\\s" + std::string(kMoreSpaces) + "]";
    return OkStatus();
  }
  if (piece.text == "\\S") {
    out += "[^\\s" + std::string(kMoreSpaces) + std::string(kOddSpace) + "]";
    return OkStatus();
  }
  int c = -1;
  if (piece.kind == Piece::Kind::kLiteral) {
    c = static_cast<unsigned char>(piece.text[0]);
  } else if (piece.kind == Piece::Kind::kEscape) {
    c = EscapedChar(piece.text);
  }
  if (c == '"') {
    out += R"((?:\\"))";
  } else if (c == '\\') {
    out += R"((?:\\\\))";
  } else if (c >= 0 && c < 0x20) {
    return At(piece.at,
              "asks for a control character, which is not supported in a "
              "pattern");
  } else {
    out += piece.text;
  }
  return OkStatus();
}

// An empty group. The library takes more than an expression says where a part
// ends in several states: (bc*)? also takes "c", a{1,2}|a takes "aaa" (0.2.8).
// With this at the end of each group, and of the whole, there is one.
constexpr char kOneEnd[] = "(?:)";

// An expression as it is put together. An open count of two or more, which the
// library also takes for less than it says, is written as a{1}a+ for a{2,}.
class ExactRegex {
 public:
  explicit ExactRegex(std::string_view pattern) : pattern_(pattern) {}

  const std::string& text() const { return text_; }
  void Add(std::string_view sign) {
    text_ += sign;
    last_.reset();
  }
  Status AddPieces(const std::vector<Piece>& pieces) {
    size_t count_end = 0;
    for (const Piece& piece : pieces) {
      if (piece.at < count_end) continue;  // written with its brace
      if (IsSign(piece, "{")) {
        const std::optional<OpenCount> count = CountAt(piece.at);
        if (count) {
          if (!last_) {
            return At(piece.at, "has a count with nothing before it to count");
          }
          count_end = piece.at + count->size;
          AddCount(*count);
          continue;
        }
      }
      RETURN_IF_ERROR(AddPiece(piece));
      if (text_.size() > kMaxWrittenBytes) {
        return InvalidArgument(
            "the pattern has too many counts without an end, such as {2,}, "
            "inside each other");
      }
    }
    return OkStatus();
  }

 private:
  struct OpenCount {
    size_t size;  // bytes with its braces
    int least;
  };

  // A byte of a UTF-8 character behind its first.
  static bool IsInsideChar(const Piece& piece) {
    return piece.kind == Piece::Kind::kLiteral &&
           (piece.text[0] & 0xc0) == 0x80;
  }

  Status AddPiece(const Piece& piece) {
    const size_t begin = text_.size();
    if (IsSign(piece, "|")) {
      last_.reset();
    } else if (IsSign(piece, "(")) {
      groups_.push_back(begin);
      last_.reset();
    } else if (IsSign(piece, ")") && !groups_.empty()) {
      text_ += kOneEnd;
      last_ = groups_.back();
      groups_.pop_back();
    } else if ((piece.kind != Piece::Kind::kSign || piece.text == ".") &&
               !IsInsideChar(piece)) {
      last_ = begin;
    }
    return AppendForJson(piece, text_);
  }

  // {2,} at this place; absent: the brace stands for itself, or the count has
  // an end, which needs no care.
  std::optional<OpenCount> CountAt(size_t at) const {
    size_t i = at + 1;
    int least = 0;
    const size_t digits = i;
    while (i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9') {
      least = std::min(least * 10 + (pattern_[i++] - '0'), kMaxRepeats);
    }
    if (i == digits || i >= pattern_.size() || pattern_[i] != ',') return {};
    if (++i >= pattern_.size() || pattern_[i] != '}') return {};
    return OpenCount{.size = i + 1 - at, .least = least};
  }

  void AddCount(const OpenCount& count) {
    if (count.least == 0) {
      text_ += '*';
    } else {
      if (count.least > 1) {
        const std::string item = text_.substr(*last_);
        text_ += "{" + std::to_string(count.least - 1) + "}" + item;
      }
      text_ += '+';
    }
    last_.reset();
  }

  const std::string_view pattern_;
  std::string text_;
  std::vector<size_t> groups_;  // where the open ones begin
  // Where the part before a count begins; absent: there is none.
  std::optional<size_t> last_;
};

}  // namespace

void NestedRepeats::Open() {
  outer_.push_back(inside_);
  inside_ = 1;
  last_ = 1;
}

void NestedRepeats::Close() {
  if (outer_.empty()) return;  // refused elsewhere
  last_ = inside_;
  inside_ = std::max(outer_.back(), last_);
  outer_.pop_back();
}

StatusOr<size_t> NestedRepeats::Count(std::string_view rest) {
  const size_t end = rest.find('}');
  if (end == rest.npos) return size_t{0};
  int64_t number = 0;
  int64_t most = 1;
  for (const char c : rest.substr(1, end - 1)) {
    if (c >= '0' && c <= '9') {
      number = std::min<int64_t>(number * 10 + (c - '0'), kMaxRepeats);
      most = std::max(most, number);
    } else if (c == ',' || IsSpace(c)) {
      number = 0;
    } else {
      return size_t{0};
    }
  }
  last_ *= most;
  inside_ = std::max(inside_, last_);
  if (last_ <= kMaxNestedRepeats) return end + 1;
  return InvalidArgument(
      "it has counts inside each other with a product of " +
      std::to_string(last_) + ", but at most " +
      std::to_string(kMaxNestedRepeats) +
      " is supported; make the inner or the outer count smaller");
}

bool IsGreatCount(std::string_view rest) {
  int number = -1;  // that is being read; -1: none
  for (const char c : rest.substr(1)) {
    if (c >= '0' && c <= '9') {
      number = std::min(std::max(number, 0) * 10 + (c - '0'), 1'000'000);
      if (number > kMaxRepeats) return true;
    } else if (IsSpace(c) ||
               std::string_view(",.+\f").find(c) != std::string_view::npos) {
      number = -1;
    } else {
      break;
    }
  }
  return false;
}

Status CheckRepeats(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] == '{' || text[i] == '~') && IsGreatCount(text.substr(i))) {
      return GreatCount(i);
    }
  }
  return OkStatus();
}

Status CheckRegexRepeats(std::string_view regex) {
  for (size_t i = 0; i < regex.size();) {
    if (regex[i] == '{' && IsGreatCount(regex.substr(i))) return GreatCount(i);
    if (regex[i] == '\\') {
      i += 2;
    } else if (regex[i] == '[') {
      i = EndOfClass(regex, i);
    } else {
      ++i;
    }
  }
  return OkStatus();
}

Status CheckRegex(std::string_view regex) {
  ASSIGN_OR_RETURN(const auto pieces, Cut(regex));
  RETURN_IF_ERROR(CheckGroups(pieces));
  RETURN_IF_ERROR(CheckNestedRepeats(regex, pieces));
  ASSIGN_OR_RETURN(const auto branches, Branches(pieces));
  for (const std::vector<Piece>& branch : branches) {
    RETURN_IF_ERROR(WithoutAnchors(branch).status());
  }
  return OkStatus();
}

StatusOr<std::string> JsonPattern(std::string_view pattern) {
  ASSIGN_OR_RETURN(const auto pieces, Cut(pattern));
  RETURN_IF_ERROR(CheckGroups(pieces));
  RETURN_IF_ERROR(CheckNestedRepeats(pattern, pieces));
  ASSIGN_OR_RETURN(const auto branches, Branches(pieces));
  ExactRegex out(pattern);
  bool first = true;
  for (const std::vector<Piece>& pieces_of_branch : branches) {
    ASSIGN_OR_RETURN(const Branch branch, WithoutAnchors(pieces_of_branch));
    if (!first) out.Add("|");
    first = false;
    if (!branch.from_start) out.Add(".*");
    RETURN_IF_ERROR(out.AddPieces(branch.pieces));
    if (!branch.to_end) out.Add(".*");
  }
  return "^(?:" + out.text() + kOneEnd + ")$";
}

}  // namespace millrace::models
