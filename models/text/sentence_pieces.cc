// Files of BPE have merges in order, or only a score for each token: then two
// neighbours merge when together they are a token, the highest score first, as
// SentencePiece does. Both are merge tables.
#include "models/text/sentence_pieces.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "models/text/byte_alphabet.h"

namespace millrace::models {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // "▁", U+2581
// How much less likely than the least likely token an unknown character is; as
// in SentencePiece.
constexpr double kUnknownPenalty = 10.0;

// Finding the parts of a piece takes time by the square of its length.
constexpr size_t kMaxPieceBytes = 1024;

size_t CharacterBytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Tokens that text may become by merging.
bool IsPiece(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
}

}  // namespace

std::string SentencePieces::BytesOf(std::string_view token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    if (token.substr(at).starts_with(kSpace)) {
      out += ' ';
      at += kSpace.size();
    } else {
      out += token[at++];
    }
  }
  return out;
}

StatusOr<std::unique_ptr<const SentencePieces>> SentencePieces::Create(
    const Vocabulary& vocabulary) {
  std::unique_ptr<SentencePieces> out(new SentencePieces());
  out->unigram_ = vocabulary.model == "t5";
  out->prefix_ = vocabulary.space_prefix;
  out->split_words_ = vocabulary.split_words;
  out->byte_fallback_ = vocabulary.byte_fallback;
  out->fuse_unknown_ = vocabulary.fuse_unknown;
  out->unk_id_ = vocabulary.unk_id;
  const size_t size = vocabulary.tokens.size();
  if (vocabulary.unk_id >= static_cast<int64_t>(size)) {
    return InvalidArgument(
        "the unknown token is " + std::to_string(vocabulary.unk_id) +
        " but the vocabulary has " + std::to_string(size) + " tokens");
  }
  const bool needs_scores = out->unigram_ || vocabulary.merges.empty();
  if (needs_scores && vocabulary.scores.size() != size) {
    return InvalidArgument("the vocabulary has " + std::to_string(size) +
                           " tokens but " +
                           std::to_string(vocabulary.scores.size()) +
                           " scores; a tokenizer of this kind needs one each");
  }
  out->id_of_byte_.fill(-1);
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < size; ++i) {
    const std::string& token = vocabulary.tokens[i];
    const TokenKind kind = vocabulary.kinds[i];
    const auto id = static_cast<int32_t>(i);
    if (kind == TokenKind::kByte) {
      if (const auto byte = ByteOfToken(token)) {
        out->id_of_byte_[static_cast<uint8_t>(*byte)] = id;
      }
      continue;
    }
    if (!IsPiece(kind) || token.empty()) continue;
    if (token.size() > kMaxPieceBytes) {
      return InvalidArgument("token " + std::to_string(i) + " has " +
                             std::to_string(token.size()) +
                             " bytes but may have at most " +
                             std::to_string(kMaxPieceBytes));
    }
    if (needs_scores && !std::isfinite(vocabulary.scores[i])) {
      return InvalidArgument("the score of token " + std::to_string(i) +
                             " is " + std::to_string(vocabulary.scores[i]) +
                             " but must be a finite number");
    }
    out->ids_.try_emplace(token, id);
    out->longest_ = std::max(out->longest_, token.size());
    if (needs_scores) least = std::min(least, vocabulary.scores[i]);
  }
  if (out->unigram_) {
    if (out->unk_id_ < 0) {
      return InvalidArgument("a Unigram tokenizer needs an unknown token");
    }
    out->scores_ = vocabulary.scores;
    out->unknown_score_ = least - kUnknownPenalty;
  } else if (vocabulary.merges.empty()) {
    out->AddMergesByScore(vocabulary);
  } else {
    RETURN_IF_ERROR(out->AddMerges(vocabulary));
  }
  return std::unique_ptr<const SentencePieces>(std::move(out));
}

int32_t SentencePieces::IdOf(std::string_view piece) const {
  const auto it = ids_.find(piece);
  return it == ids_.end() ? -1 : it->second;
}

Status SentencePieces::AddMerges(const Vocabulary& vocabulary) {
  merges_ = MergeTable(vocabulary.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ');
    const std::string_view left = merge.substr(0, space);
    const std::string_view right =
        space == std::string_view::npos ? "" : merge.substr(space + 1);
    joined.assign(left).append(right);
    const int32_t found[] = {IdOf(left), IdOf(right), IdOf(joined)};
    if (std::ranges::any_of(found, [](int32_t id) { return id < 0; })) {
      return InvalidArgument("merge " + std::to_string(rank) + " is '" +
                             std::string(merge) +
                             "'; it must be two tokens with a space between, "
                             "which together are a token");
    }
    merges_.Add(found[0], found[1], {static_cast<uint32_t>(rank), found[2]});
  }
  return OkStatus();
}

void SentencePieces::AddMergesByScore(const Vocabulary& vocabulary) {
  std::vector<int32_t> order;
  for (const auto& [piece, id] : ids_) order.push_back(id);
  const auto score = [&](int32_t id) {
    return vocabulary.scores[static_cast<size_t>(id)];
  };
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    return score(a) > score(b) || (score(a) == score(b) && a < b);
  });
  struct Entry {
    int32_t left, right;
    MergeTable::Merge merge;
  };
  std::vector<Entry> entries;
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    // Of equal scores the leftmost pair merges first.
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    const std::string_view piece =
        vocabulary.tokens[static_cast<size_t>(order[i])];
    for (size_t at = CharacterBytes(piece[0]); at < piece.size();
         at += CharacterBytes(piece[at])) {
      const int32_t left = IdOf(piece.substr(0, at));
      const int32_t right = IdOf(piece.substr(at));
      if (left < 0 || right < 0) continue;
      entries.push_back({left, right, {rank, order[i]}});
    }
  }
  merges_ = MergeTable(entries.size());
  for (const Entry& entry : entries) {
    merges_.Add(entry.left, entry.right, entry.merge);
  }
}

std::string SentencePieces::Normalise(std::string_view text, bool first) const {
  std::string out;
  out.reserve(text.size() + text.size() / 4 + kSpace.size());
  const bool begins_with_space =
      text.starts_with(' ') || text.starts_with(kSpace);
  if (prefix_ == SpacePrefix::kEach ||
      (!begins_with_space &&
       (prefix_ == SpacePrefix::kEachIfLacking ||
        (prefix_ == SpacePrefix::kFirstIfLacking && first)))) {
    out += kSpace;
  }
  for (const char c : text) {
    if (c == ' ') {
      out += kSpace;
    } else {
      out += c;
    }
  }
  return out;
}

void SentencePieces::Encode(std::string_view text, bool first,
                            std::vector<int32_t>& out) const {
  if (text.empty()) return;
  const std::string normal = Normalise(text, first);
  const std::string_view whole = normal;
  size_t begin = 0;
  while (split_words_ && begin < whole.size()) {
    const size_t end = whole.find(kSpace, begin + 1);
    if (end == std::string_view::npos) break;
    EncodeWord(whole.substr(begin, end - begin), out);
    begin = end;
  }
  if (begin < whole.size()) EncodeWord(whole.substr(begin), out);
}

void SentencePieces::AppendUnknown(std::string_view character,
                                   std::vector<int32_t>& out) const {
  const auto id_of = [&](char byte) {
    return id_of_byte_[static_cast<uint8_t>(byte)];
  };
  if (byte_fallback_ && std::ranges::all_of(character, [&](char byte) {
        return id_of(byte) >= 0;
      })) {
    for (const char byte : character) out.push_back(id_of(byte));
    return;
  }
  if (unk_id_ < 0) return;
  if (fuse_unknown_ && !out.empty() && out.back() == unk_id_) return;
  out.push_back(unk_id_);
}

void SentencePieces::EncodeWord(std::string_view word,
                                std::vector<int32_t>& out) const {
  if (unigram_) {
    EncodeUnigram(word, out);
    return;
  }
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < word.size();) {
    const std::string_view character =
        word.substr(at, CharacterBytes(word[at]));
    const int32_t id = IdOf(character);
    if (id >= 0) {
      tokens.push_back(id);
    } else {
      AppendUnknown(character, tokens);
    }
    at += character.size();
  }
  merges_.Apply(tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

// Viterbi over the places between characters.
void SentencePieces::EncodeUnigram(std::string_view word,
                                   std::vector<int32_t>& out) const {
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    size_t from = 0;
    int32_t id = -1;  // -1: an unknown character
  };
  std::vector<Best> best(word.size() + 1);
  best[0].score = 0;
  size_t one = 0;
  for (size_t at = 0; at < word.size(); at += one) {
    one = std::min(CharacterBytes(word[at]), word.size() - at);
    const auto offer = [&](size_t end, double score, int32_t id) {
      if (best[at].score + score > best[end].score) {
        best[end] = {best[at].score + score, at, id};
      }
    };
    bool is_token = false;
    const size_t most = std::min(word.size(), at + longest_);
    for (size_t end = at + one; end <= most;) {
      const int32_t id = IdOf(word.substr(at, end - at));
      if (id >= 0) {
        offer(end, scores_[static_cast<size_t>(id)], id);
        is_token = is_token || end == at + one;
      }
      if (end == word.size()) break;
      end += CharacterBytes(word[end]);
    }
    if (!is_token) offer(at + one, unknown_score_, -1);
  }
  std::vector<std::pair<std::string_view, int32_t>> path;
  for (size_t end = word.size(); end > 0; end = best[end].from) {
    path.emplace_back(word.substr(best[end].from, end - best[end].from),
                      best[end].id);
  }
  std::vector<int32_t> tokens;
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    if (step->second >= 0) {
      tokens.push_back(step->second);
    } else {
      AppendUnknown(step->first, tokens);
    }
  }
  out.insert(out.end(), tokens.begin(), tokens.end());
}

}  // namespace millrace::models
