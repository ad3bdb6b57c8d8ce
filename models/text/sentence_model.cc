#include "models/text/sentence_model.h"

#include <bit>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace millrace::models {
namespace {

constexpr size_t kMostTokens = 1 << 22;

// One field of a message.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;           // of varints and fixed sizes
  std::string_view bytes = {};  // of what has a length
};

// Fields of a message, one after the other.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  // Nothing at the end; an error where the bytes are no message.
  StatusOr<std::optional<Field>> Next() {
    if (bytes_.empty()) return std::optional<Field>();
    ASSIGN_OR_RETURN(const uint64_t key, Varint());
    Field field = {.number = key >> 3};
    switch (key & 7) {
      case 0: {
        ASSIGN_OR_RETURN(field.value, Varint());
        break;
      }
      case 1: {
        ASSIGN_OR_RETURN(field.value, Fixed(8));
        break;
      }
      case 2: {
        ASSIGN_OR_RETURN(const uint64_t length, Varint());
        if (length > bytes_.size()) return Truncated();
        field.bytes = bytes_.substr(0, length);
        bytes_.remove_prefix(length);
        break;
      }
      case 5: {
        ASSIGN_OR_RETURN(field.value, Fixed(4));
        break;
      }
      default:
        return InvalidArgument("a field has the wire type " +
                               std::to_string(key & 7) +
                               "; it is no file of SentencePiece");
    }
    return std::optional<Field>(field);
  }

 private:
  static Status Truncated() {
    return InvalidArgument(
        "it ends within a field; it is truncated or no "
        "file of SentencePiece");
  }
  StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return Truncated();
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    return InvalidArgument(
        "a number is longer than ten bytes; it is no file "
        "of SentencePiece");
  }
  StatusOr<uint64_t> Fixed(size_t size) {
    if (bytes_.size() < size) return Truncated();
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[i])) << 8 * i;
    }
    bytes_.remove_prefix(size);
    return value;
  }

  std::string_view bytes_;
};

// Calls `use` with each field.
template <typename Use>
Status ForEach(std::string_view bytes, Use use) {
  Reader reader(bytes);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Field> field, reader.Next());
    if (!field) return OkStatus();
    RETURN_IF_ERROR(use(*field));
  }
}

Status ReadPiece(std::string_view bytes, Vocabulary& out) {
  if (out.tokens.size() == kMostTokens) {
    return InvalidArgument("it has more than " + std::to_string(kMostTokens) +
                           " tokens");
  }
  std::string& token = out.tokens.emplace_back();
  double& score = out.scores.emplace_back(0.0);
  uint64_t type = 1;
  RETURN_IF_ERROR(ForEach(bytes, [&](const Field& field) {
    if (field.number == 1) token = field.bytes;
    if (field.number == 2) {
      score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    }
    if (field.number == 3) type = field.value;
    return OkStatus();
  }));
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kControl,
                                  TokenKind::kControl, TokenKind::kUserDefined,
                                  TokenKind::kUnused,  TokenKind::kByte};
  if (type < 1 || type > std::size(kKinds)) {
    return InvalidArgument("token " + std::to_string(out.tokens.size() - 1) +
                           " has the unknown kind " + std::to_string(type));
  }
  out.kinds.push_back(kKinds[type - 1]);
  return OkStatus();
}

Status ReadTrainer(std::string_view bytes, Vocabulary& out) {
  constexpr uint64_t kUnigram = 1, kBpe = 2;
  uint64_t model = kUnigram;
  int32_t unk = 0, bos = 1, eos = 2;
  RETURN_IF_ERROR(ForEach(bytes, [&](const Field& field) {
    const auto id = static_cast<int32_t>(field.value);
    if (field.number == 3) model = field.value;
    if (field.number == 24 && field.value != 0) {
      return Unimplemented(
          "white space is written behind words, which is not supported");
    }
    if (field.number == 35) out.byte_fallback = field.value != 0;
    if (field.number == 40) unk = id;
    if (field.number == 41) bos = id;
    if (field.number == 42) eos = id;
    return OkStatus();
  }));
  if (model != kUnigram && model != kBpe) {
    return Unimplemented("its model is of kind " + std::to_string(model) +
                         "; Unigram (1) and BPE (2) are supported");
  }
  out.model = model == kBpe ? "llama" : "t5";
  out.unk_id = unk;
  out.bos_id = bos;
  out.eos_id = eos;
  return OkStatus();
}

Status ReadNormalizer(std::string_view bytes, bool* prefix, bool* squeezes) {
  return ForEach(bytes, [&](const Field& field) {
    if (field.number == 2 && !field.bytes.empty()) {
      return Unimplemented(
          "text would be normalised by a table of the model, which is not "
          "supported");
    }
    if (field.number == 3) *prefix = field.value != 0;
    if (field.number == 4) *squeezes = field.value != 0;
    if (field.number == 5 && field.value == 0) {
      return Unimplemented("spaces are not escaped, which is not supported");
    }
    return OkStatus();
  });
}

}  // namespace

StatusOr<Vocabulary> ReadSentenceModel(std::string_view bytes) {
  Vocabulary out;
  out.model = "t5";
  out.unk_id = 0;
  bool prefix = true;
  bool squeezes = true;
  RETURN_IF_ERROR(ForEach(bytes, [&](const Field& field) {
    if (field.number == 1) return ReadPiece(field.bytes, out);
    if (field.number == 2) return ReadTrainer(field.bytes, out);
    if (field.number == 3)
      return ReadNormalizer(field.bytes, &prefix, &squeezes);
    return OkStatus();
  }));
  if (out.tokens.empty()) {
    return InvalidArgument("it has no tokens; it is no file of SentencePiece");
  }
  if (squeezes) {
    return Unimplemented(
        "runs of spaces would become one (remove_extra_whitespaces), which is "
        "not supported");
  }
  const auto size = static_cast<int32_t>(out.tokens.size());
  for (int32_t* id : {&out.unk_id, &out.bos_id, &out.eos_id}) {
    if (*id < -1 || *id >= size) {
      return InvalidArgument("it names the token " + std::to_string(*id) +
                             " of " + std::to_string(size));
    }
  }
  out.space_prefix = prefix ? SpacePrefix::kEach : SpacePrefix::kNone;
  if (out.eos_id >= 0) out.eog_ids.push_back(out.eos_id);
  out.add_bos = out.model == "llama" && out.bos_id >= 0;
  return out;
}

}  // namespace millrace::models
