// Of byte-level BPE, tokens are parts of the text: their bytes, one behind the
// other, are the text again. WordPiece changes it and keeps the places.
#include "models/text/token_spans.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "models/text/spaces.h"

namespace millrace::models {
namespace {

using Json = nlohmann::ordered_json;

// Whether the post_processor takes spaces off: that of RoBERTa and ByteLevel do
// unless they say no.
bool TrimsSpaces(const Json& step) {
  if (!step.is_object()) return false;
  const Json type = step.value("type", Json());
  if (type == "RobertaProcessing" || type == "ByteLevel") {
    return step.value("trim_offsets", Json(true)) != false;
  }
  const auto steps = step.find("processors");
  return steps != step.end() && steps->is_array() &&
         std::any_of(steps->begin(), steps->end(), TrimsSpaces);
}

bool IsInsideCharacter(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80;
}

// Spaces at the ends are counted in the token; a token of spaces alone ends up
// empty at its end.
void TrimSpaces(std::string_view piece, TokenSpan& span) {
  const size_t first = std::min(piece.find_first_not_of(' '), piece.size());
  const size_t last = piece.find_last_not_of(' ');
  const size_t behind =
      last == std::string_view::npos ? piece.size() : piece.size() - last - 1;
  span.begin = std::min(span.begin + first, span.end);
  span.end = std::max(span.begin, span.end - std::min(behind, span.end));
}

}  // namespace

StatusOr<std::unique_ptr<const SpanEncoder>> SpanEncoder::Create(
    const Tokenizer& tokenizer, std::string_view tokenizer_json) {
  std::unique_ptr<SpanEncoder> out(new SpanEncoder());
  const Vocabulary& words = tokenizer.vocabulary();
  out->tokenizer_ = &tokenizer;
  if (words.model == "bert") {
    ASSIGN_OR_RETURN(out->word_pieces_, WordPieces::Create(words));
  } else if (words.model != "gpt2" || words.nfc) {
    return Unimplemented(
        std::string("places of tokens in a text are known for WordPiece and "
                    "byte-level BPE, and the tokenizer is ") +
        (words.nfc ? "byte-level BPE that changes the text (NFC)"
                   : "SentencePiece"));
  } else {
    ASSIGN_OR_RETURN(const Json json, ParseJson(tokenizer_json));
    out->trims_spaces_ = TrimsSpaces(json.value("post_processor", Json()));
  }
  for (size_t id = 0; id < words.tokens.size(); ++id) {
    const TokenKind kind = words.kinds[id];
    if (kind != TokenKind::kControl && kind != TokenKind::kUserDefined) {
      continue;
    }
    out->specials_.Add(words.tokens[id], static_cast<int32_t>(id),
                       kind == TokenKind::kUserDefined);
  }
  out->strips_left_.insert(words.lstrip_ids.begin(), words.lstrip_ids.end());
  out->strips_right_.insert(words.rstrip_ids.begin(), words.rstrip_ids.end());
  return std::unique_ptr<const SpanEncoder>(std::move(out));
}

StatusOr<std::vector<TokenSpan>> SpanEncoder::Encode(
    std::string_view text) const {
  std::vector<TokenSpan> out;
  for (size_t at = 0; at < text.size();) {
    const auto match = specials_.Find(text, at, /*with_control=*/true);
    size_t begin = match.begin;
    if (match.id >= 0 && strips_left_.contains(match.id)) {
      begin = BeforeSpaces(text, at, begin);
    }
    RETURN_IF_ERROR(EncodeOrdinary(text, at, begin, out));
    at = match.end;
    if (match.id < 0) break;
    if (strips_right_.contains(match.id)) at = AfterSpaces(text, at);
    out.push_back({match.id, begin, at});
  }
  return out;
}

Status SpanEncoder::EncodeOrdinary(std::string_view text, size_t begin,
                                   size_t end,
                                   std::vector<TokenSpan>& out) const {
  const std::string_view part = text.substr(begin, end - begin);
  if (word_pieces_ != nullptr) {
    const size_t first = out.size();
    word_pieces_->EncodeSpans(part, out);
    for (size_t i = first; i < out.size(); ++i) {
      out[i].begin += begin;
      out[i].end += begin;
    }
    return OkStatus();
  }
  for (const int32_t id : tokenizer_->Encode(part, {})) {
    const std::string_view piece = tokenizer_->Piece(id, true);
    if (piece.size() > end - begin ||
        text.substr(begin, piece.size()) != piece) {
      break;
    }
    TokenSpan span{id, begin, begin + piece.size()};
    begin = span.end;
    // A part of a character stands for the whole.
    while (IsInsideCharacter(text, span.begin)) --span.begin;
    while (IsInsideCharacter(text, span.end)) ++span.end;
    if (trims_spaces_) TrimSpaces(piece, span);
    out.push_back(span);
  }
  if (begin == end) return OkStatus();
  return InvalidArgument("the text has bytes at " + std::to_string(begin) +
                         " that the model has no token for; leave them out");
}

}  // namespace millrace::models
