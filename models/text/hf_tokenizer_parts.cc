#include "models/text/hf_tokenizer_parts.h"

#include <nlohmann/json.hpp>

#include "config/base/json.h"
#include "config/base/utf8.h"

namespace millrace::models::hf {
namespace {

void Place(int64_t id, const std::string& token, TokenKind kind,
           Vocabulary& out) {
  const auto at = static_cast<size_t>(id);
  if (at >= out.tokens.size()) {
    out.tokens.resize(at + 1);
    out.kinds.resize(at + 1, TokenKind::kUnused);
  }
  out.tokens[at] = token;
  out.kinds[at] = kind;
}

}  // namespace

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string TypeOf(const Json& object) {
  const Json* type = Find(object, "type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "";
}

bool IsTrue(const Json& object, const char* key) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

StatusOr<int64_t> IdOf(const Json& value, const std::string& what) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= kMaxTokens) {
    return InvalidArgument(what + " has the id " +
                           Shortened(DumpJson(value), 40) + "; 0 to " +
                           std::to_string(kMaxTokens - 1) + " is allowed");
  }
  return value.get<int64_t>();
}

Status ReadVocab(const Json& model, Vocabulary& out) {
  const Json* vocab = Find(model, "vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty()) {
    return InvalidArgument("model.vocab is no object of tokens and ids");
  }
  for (const auto& [token, value] : vocab->items()) {
    ASSIGN_OR_RETURN(const int64_t id, IdOf(value, "model.vocab"));
    if (static_cast<size_t>(id) < out.tokens.size() &&
        out.kinds[static_cast<size_t>(id)] != TokenKind::kUnused) {
      return InvalidArgument("model.vocab gives the id " + std::to_string(id) +
                             " to two tokens");
    }
    Place(id, token, TokenKind::kNormal, out);
  }
  return OkStatus();
}

Status ReadAddedTokens(const Json& root, Vocabulary& out) {
  const Json* added = Find(root, "added_tokens");
  if (added == nullptr) return OkStatus();
  if (!added->is_array()) return InvalidArgument("added_tokens is no list");
  for (const Json& token : *added) {
    const Json* content = Find(token, "content");
    const Json* id = Find(token, "id");
    if (content == nullptr || !content->is_string() || id == nullptr) {
      return InvalidArgument("added_tokens holds " +
                             Shortened(DumpJson(token), 100) +
                             ", which has no content or no id");
    }
    const auto text = content->get<std::string>();
    ASSIGN_OR_RETURN(const int64_t number,
                     IdOf(*id, "the added token '" + text + "'"));
    if (IsTrue(token, "single_word")) {
      return Unimplemented("the added token '" + text +
                           "' has single_word, which is not supported");
    }
    const auto id32 = static_cast<int32_t>(number);
    if (IsTrue(token, "lstrip")) out.lstrip_ids.push_back(id32);
    if (IsTrue(token, "rstrip")) out.rstrip_ids.push_back(id32);
    Place(number, text,
          IsTrue(token, "special") ? TokenKind::kControl
                                   : TokenKind::kUserDefined,
          out);
  }
  return OkStatus();
}

}  // namespace millrace::models::hf
