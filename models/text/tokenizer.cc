// The tokenizer joins three parts: special tokens are found first, the text
// between them is cut into pieces, and each piece is merged from its bytes. A
// byte may have no token (models are trained without some control characters);
// such a byte vanishes, and its neighbours may then merge, as in the tokenizers
// that models are trained with.
#include "models/text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "config/base/utf8.h"
#include "models/text/bpe.h"
#include "models/text/byte_alphabet.h"
#include "models/text/nfc.h"
#include "models/text/pretokenizer.h"
#include "models/text/sentence_pieces.h"
#include "models/text/spaces.h"
#include "models/text/special_matcher.h"
#include "models/text/word_pieces.h"

namespace millrace::models {
namespace {

using IdByText = std::unordered_map<std::string_view, int32_t>;

std::string BytesOf(const ByteAlphabet& alphabet, bool byte_level,
                    std::string_view token, TokenKind kind) {
  if (kind == TokenKind::kByte) {
    const std::optional<char> byte = ByteOfToken(token);
    return byte ? std::string(1, *byte) : std::string(token);
  }
  if (!byte_level && kind != TokenKind::kControl) {
    return SentencePieces::BytesOf(token);
  }
  if (kind == TokenKind::kNormal) {
    std::optional<std::string> bytes = alphabet.Bytes(token);
    if (bytes) return *std::move(bytes);
  }
  return std::string(token);  // special tokens are written as they read
}

Status CheckShape(const Vocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  if (vocabulary.model != "gpt2" && vocabulary.model != "llama" &&
      vocabulary.model != "t5" && vocabulary.model != "bert") {
    return InvalidArgument("tokenizer model '" + vocabulary.model +
                           "' is not supported; known are gpt2 (byte-level "
                           "BPE), llama and t5 (SentencePiece) and bert "
                           "(WordPiece)");
  }
  if (size == 0 ||
      size > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument("the vocabulary has " + std::to_string(size) +
                           " tokens; it needs 1 to 2147483647");
  }
  if (vocabulary.kinds.size() != size) {
    return InvalidArgument("the vocabulary has " + std::to_string(size) +
                           " tokens but " +
                           std::to_string(vocabulary.kinds.size()) + " kinds");
  }
  const auto outside = [&](int32_t id) {
    return id < 0 || static_cast<size_t>(id) >= size;
  };
  const auto error = [&](const char* what, int32_t id) {
    return InvalidArgument(std::string(what) + " is " + std::to_string(id) +
                           " but the vocabulary has " + std::to_string(size) +
                           " tokens");
  };
  if (vocabulary.bos_id != -1 && outside(vocabulary.bos_id)) {
    return error("bos_id", vocabulary.bos_id);
  }
  if (vocabulary.eos_id != -1 && outside(vocabulary.eos_id)) {
    return error("eos_id", vocabulary.eos_id);
  }
  for (const int32_t id : vocabulary.eog_ids) {
    if (outside(id)) return error("an id of eog_ids", id);
  }
  if (vocabulary.add_bos && vocabulary.bos_id == -1) {
    return InvalidArgument(
        "the model needs a BOS token before the text but names none");
  }
  return OkStatus();
}

// Fills the table; the ranks are the places in the list.
Status AddMerges(const std::vector<std::string>& merges, const IdByText& ids,
                 MergeTable& table) {
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 ||
        space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return InvalidArgument("merge " + std::to_string(rank) + " is '" +
                             std::string(merge) +
                             "'; it must be two pieces and one space");
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    joined.assign(left).append(right);
    int32_t found[3];
    const std::string_view wanted[] = {left, right, joined};
    for (int i = 0; i < 3; ++i) {
      const auto it = ids.find(wanted[i]);
      if (it == ids.end()) {
        return InvalidArgument("merge " + std::to_string(rank) + " is '" +
                               std::string(merge) + "' but '" +
                               std::string(wanted[i]) +
                               "' is no ordinary token of the vocabulary");
      }
      found[i] = it->second;
    }
    table.Add(found[0], found[1], {static_cast<uint32_t>(rank), found[2]});
  }
  return OkStatus();
}

}  // namespace

struct Tokenizer::Impl {
  Vocabulary vocabulary;                                  // without its merges
  std::unique_ptr<const WordPieces> word_pieces;          // or:
  std::unique_ptr<const SentencePieces> sentence_pieces;  // or, byte-level:
  std::unique_ptr<Pretokenizer> pretokenizer;
  MergeTable merges{0};
  SpecialMatcher specials;
  std::string bytes;            // of all pieces, one after the other
  std::vector<size_t> offsets;  // of each id's piece in `bytes`, and the end
  std::array<int32_t, 256> id_of_byte;  // -1: the byte has no token
  IdByText id_of_piece;  // bytes → id, only for whole_pieces_first
  std::unordered_map<std::string_view, int32_t> id_of_special;
  std::unordered_set<int32_t> strips_left, strips_right;
  std::vector<bool> ends_answer;

  std::string_view Bytes(int32_t id) const {
    const size_t i = static_cast<size_t>(id);
    return std::string_view(bytes).substr(offsets[i],
                                          offsets[i + 1] - offsets[i]);
  }

  Status MakeByteLevel(const ByteAlphabet& alphabet, const IdByText& ordinary) {
    id_of_byte.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      const auto it =
          ordinary.find(alphabet.Character(static_cast<uint8_t>(byte)));
      if (it != ordinary.end()) id_of_byte[byte] = it->second;
    }
    merges = MergeTable(vocabulary.merges.size());
    RETURN_IF_ERROR(AddMerges(vocabulary.merges, ordinary, merges));
    if (pretokenizer->whole_pieces_first()) {
      for (const auto& [token, id] : ordinary) {
        id_of_piece.try_emplace(Bytes(id), id);
      }
    }
    return OkStatus();
  }

  // `first`: nothing stands before the text.
  void EncodeOrdinary(std::string_view text, bool first,
                      std::vector<int32_t>& out) const {
    std::string normal;
    if (vocabulary.nfc && !IsPlainlyNfc(text)) text = normal = ToNfc(text);
    if (word_pieces != nullptr) {
      word_pieces->Encode(text, out);
      return;
    }
    if (sentence_pieces != nullptr) {
      sentence_pieces->Encode(text, first, out);
      return;
    }
    std::vector<int32_t> tokens;
    pretokenizer->Cut(text, [&](std::string_view piece) {
      if (pretokenizer->whole_pieces_first()) {
        const auto it = id_of_piece.find(piece);
        if (it != id_of_piece.end()) {
          out.push_back(it->second);
          return;
        }
      }
      tokens.clear();
      for (const char byte : piece) {
        const int32_t id = id_of_byte[static_cast<uint8_t>(byte)];
        if (id >= 0) tokens.push_back(id);
      }
      merges.Apply(tokens);
      out.insert(out.end(), tokens.begin(), tokens.end());
    });
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(Vocabulary vocabulary) {
  RETURN_IF_ERROR(CheckShape(vocabulary));
  auto impl = std::make_unique<Impl>();
  const bool byte_level = vocabulary.model == "gpt2";
  if (byte_level) {
    ASSIGN_OR_RETURN(impl->pretokenizer,
                     vocabulary.pre.empty()
                         ? Pretokenizer::Create(vocabulary.splits,
                                                vocabulary.whole_pieces_first)
                         : Pretokenizer::Create(vocabulary.pre));
  }
  impl->vocabulary = std::move(vocabulary);
  const Vocabulary& words = impl->vocabulary;
  const int32_t size = static_cast<int32_t>(words.tokens.size());

  const ByteAlphabet alphabet;
  IdByText ordinary;
  ordinary.reserve(words.tokens.size());
  for (int32_t id = 0; id < size; ++id) {
    const std::string& token = words.tokens[id];
    const TokenKind kind = words.kinds[id];
    impl->offsets.push_back(impl->bytes.size());
    impl->bytes += BytesOf(alphabet, byte_level, token, kind);
    if (kind == TokenKind::kNormal) ordinary.try_emplace(token, id);
    if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined) {
      if (!IsValidUtf8(token)) {
        return InvalidArgument("special token " + std::to_string(id) +
                               " is not valid UTF-8, so that text cannot be "
                               "cut at it");
      }
      impl->specials.Add(token, id, kind == TokenKind::kUserDefined);
      impl->id_of_special.try_emplace(token, id);
    }
  }
  impl->offsets.push_back(impl->bytes.size());

  if (byte_level) {
    RETURN_IF_ERROR(impl->MakeByteLevel(alphabet, ordinary));
  } else if (words.model == "bert") {
    ASSIGN_OR_RETURN(impl->word_pieces, WordPieces::Create(words));
  } else {
    ASSIGN_OR_RETURN(impl->sentence_pieces, SentencePieces::Create(words));
  }
  impl->vocabulary.merges = {};
  for (const int32_t id : words.lstrip_ids) impl->strips_left.insert(id);
  for (const int32_t id : words.rstrip_ids) impl->strips_right.insert(id);
  impl->ends_answer.resize(words.tokens.size());
  for (const int32_t id : words.eog_ids) impl->ends_answer[id] = true;
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text,
                                       const EncodeOptions& options) const {
  const Part part{text, options.parse_special};
  return EncodeParts({&part, 1}, options.add_special);
}

std::vector<int32_t> Tokenizer::EncodeParts(std::span<const Part> parts,
                                            bool add_special) const {
  std::vector<int32_t> out;
  const Vocabulary& words = impl_->vocabulary;
  if (add_special && words.add_bos) out.push_back(words.bos_id);

  std::string ordinary;  // text since the last special token
  bool first = true;     // nothing stands before it
  std::string run;       // neighbouring parts of one kind
  for (size_t i = 0; i < parts.size();) {
    const bool with_control = parts[i].parse_special;
    run.clear();
    for (; i < parts.size() && parts[i].parse_special == with_control; ++i) {
      run += parts[i].text;
    }
    if (!IsValidUtf8(run)) run = ReplaceInvalidUtf8(run);
    for (size_t at = 0; at < run.size();) {
      const auto match = impl_->specials.Find(run, at, with_control);
      ordinary.append(run, at, match.begin - at);
      at = match.end;
      if (match.id < 0) break;
      if (impl_->strips_left.contains(match.id)) {
        ordinary.resize(BeforeSpaces(ordinary, 0, ordinary.size()));
      }
      if (impl_->strips_right.contains(match.id)) at = AfterSpaces(run, at);
      impl_->EncodeOrdinary(ordinary, first, out);
      ordinary.clear();
      out.push_back(match.id);
      first = false;
    }
  }
  impl_->EncodeOrdinary(ordinary, first, out);
  return out;
}

std::string_view Tokenizer::Piece(int32_t id, bool with_special) const {
  if (id < 0 || id >= size() || (!with_special && IsSpecial(id))) return {};
  return impl_->Bytes(id);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids,
                              bool with_special) const {
  std::string out;
  for (const int32_t id : ids) out += Piece(id, with_special);
  // The space that encoding put there.
  if (impl_->vocabulary.space_prefix != SpacePrefix::kNone && !ids.empty() &&
      !IsSpecial(ids.front()) && out.starts_with(' ')) {
    out.erase(0, 1);
  }
  return out;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  if (id < 0 || id >= size()) return false;
  const TokenKind kind = impl_->vocabulary.kinds[id];
  return kind == TokenKind::kControl || kind == TokenKind::kUnused;
}

bool Tokenizer::EndsAnswer(int32_t id) const {
  return id >= 0 && id < size() && impl_->ends_answer[id];
}

std::optional<int32_t> Tokenizer::IdOfSpecial(std::string_view text) const {
  const auto it = impl_->id_of_special.find(text);
  if (it == impl_->id_of_special.end()) return {};
  return it->second;
}

int32_t Tokenizer::size() const {
  return static_cast<int32_t>(impl_->vocabulary.tokens.size());
}

const Vocabulary& Tokenizer::vocabulary() const { return impl_->vocabulary; }

}  // namespace millrace::models
