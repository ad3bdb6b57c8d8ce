#include "handlers/texts/token_words.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

void Replace(std::string_view from, std::string_view to, std::string& text) {
  for (size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// As the WordPiece decoder of the package tokenizers, in its order.
void CleanUp(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) Replace(from, to, text);
}

}  // namespace

StatusOr<TokenWords> TokenWords::Create(const models::Tokenizer& tokenizer,
                                        std::string_view tokenizer_json) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(tokenizer_json));
  TokenWords out;
  out.tokenizer_ = &tokenizer;
  const Json model = json.value("model", Json());
  if (model.is_object()) {
    const Json prefix = model.value("continuing_subword_prefix", Json());
    out.knows_words_ = prefix.is_string() && prefix != "";
  }
  const Json decoder = json.value("decoder", Json());
  if (!decoder.is_object()) return out;
  const Json type = decoder.value("type", Json());
  if (type == "WordPiece") {
    out.decoder_ = Decoder::kWordPiece;
    const Json prefix = decoder.value("prefix", Json("##"));
    if (prefix.is_string()) out.prefix_ = prefix.get<std::string>();
    out.cleans_up_ = decoder.value("cleanup", Json(true)) != false;
  } else if (type == "ByteLevel") {
    out.decoder_ = Decoder::kByteLevel;
  } else {
    return Unimplemented("the decoder " + Shortened(DumpJson(decoder), 100) +
                         " is not supported for words of entities; WordPiece "
                         "and ByteLevel are");
  }
  return out;
}

const std::string& TokenWords::Of(int32_t id) const {
  return tokenizer_->vocabulary().tokens[static_cast<size_t>(id)];
}

bool TokenWords::IsUnknown(int32_t id) const {
  return id == tokenizer_->vocabulary().unk_id;
}

std::string TokenWords::Join(std::span<const std::string> words) const {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    switch (decoder_) {
      case Decoder::kNone:
        if (i > 0) word.insert(0, " ");
        break;
      case Decoder::kByteLevel:
        // A word that is none of the alphabet's stands as it is.
        if (auto bytes = alphabet_.Bytes(word)) word = *std::move(bytes);
        break;
      case Decoder::kWordPiece:
        if (i > 0 && word.starts_with(prefix_)) {
          word.erase(0, prefix_.size());
        } else if (i > 0) {
          word.insert(0, " ");
        }
        if (cleans_up_) CleanUp(word);
        break;
    }
    out += word;
  }
  return IsValidUtf8(out) ? out : ReplaceInvalidUtf8(out);
}

}  // namespace millrace::handlers
