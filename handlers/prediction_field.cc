#include "handlers/prediction_field.h"

#include <nlohmann/json.hpp>

#include "handlers/json_fields.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

Status CheckType(const Json& object, const std::string& path,
                 std::string_view wanted) {
  const Json* type = FindField(object, "type");
  if (type != nullptr && *type == wanted) return OkStatus();
  return InvalidArgument(
             path + " " +
             (type == nullptr ? "is missing" : "is " + Shown(*type)) +
             " but must be \"" + std::string(wanted) + "\"")
      .At(path);
}

StatusOr<std::string> TextOfPart(const Json& part, const std::string& path) {
  if (!part.is_object()) return WrongType(path, "an object", part);
  RETURN_IF_ERROR(CheckType(part, path + ".type", "text"));
  const Json* text = FindField(part, "text");
  if (text == nullptr) {
    return InvalidArgument(path + ".text is missing").At(path + ".text");
  }
  return AsString(*text, path + ".text");
}

}  // namespace

StatusOr<std::string> ReadPrediction(const Json& body) {
  std::string text;
  ASSIGN_OR_RETURN(const Json* prediction, ReadObject(body, "prediction"));
  if (prediction == nullptr) return text;
  RETURN_IF_ERROR(CheckType(*prediction, "prediction.type", "content"));
  const std::string path = "prediction.content";
  const Json* content = FindField(*prediction, "content");
  if (content == nullptr) {
    return InvalidArgument(path + " is missing; it is the predicted text")
        .At(path);
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    return WrongType(path, "a string or an array of text parts", *content);
  }
  for (size_t i = 0; i < content->size(); ++i) {
    ASSIGN_OR_RETURN(
        const std::string part,
        TextOfPart((*content)[i], path + "[" + std::to_string(i) + "]"));
    text += part;
  }
  return text;
}

}  // namespace millrace::handlers
