// A chat prompt gets no BOS from the tokenizer, since templates write their
// own; a raw prompt does.
#include "handlers/generate_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "handlers/tool_prompt.h"
#include "scheduler/request.h"

namespace millrace::handlers {
namespace {

// Texts of fewer bytes for each token of the context are simply encoded.
constexpr int64_t kPlausibleTokenBytes = 16;

int64_t TextBytes(const std::vector<models::PromptPart>& parts) {
  int64_t bytes = 0;
  for (const auto& part : parts) {
    bytes += static_cast<int64_t>(part.text.size());
  }
  return bytes;
}

// How many tokens text of so many bytes has at least, when that is already too
// many: no token spells more than the longest one. Else 0.
int64_t SurelyTooMany(const models::Tokenizer& tokenizer, int64_t bytes,
                      int64_t max_context) {
  if (bytes <= max_context * kPlausibleTokenBytes) return 0;
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    longest = std::max(longest, tokenizer.Piece(id, true).size());
  }
  const int64_t least = bytes / static_cast<int64_t>(longest);
  return least > max_context ? least : 0;
}

std::vector<int32_t> EncodeRendered(
    const GenerateParts& parts,
    const std::vector<models::PromptPart>& rendered) {
  std::vector<models::Tokenizer::Part> pieces;
  pieces.reserve(rendered.size());
  for (const models::PromptPart& part : rendered) {
    pieces.push_back({part.text, !part.from_user});
  }
  return parts.tokenizer->EncodeParts(pieces, /*add_special=*/false);
}

bool IsCommonRole(const std::string& role) {
  return role == "system" || role == "user" || role == "assistant";
}

// The roles that the template's text has in quotes: "system", "user", ….
std::string RolesIn(const std::string& source) {
  std::string roles;
  for (const std::string_view role :
       {"system", "developer", "user", "assistant", "model", "tool", "function",
        "ipython"}) {
    const auto has = [&](char quote) {
      return source.find(quote + std::string(role) + quote) != source.npos;
    };
    if (!has('\'') && !has('"')) continue;
    if (!roles.empty()) roles += ", ";
    roles += "\"" + std::string(role) + "\"";
  }
  return roles.empty() ? "\"system\", \"user\", \"assistant\"" : roles;
}

bool IsSameText(const std::vector<models::PromptPart>& a,
                const std::vector<models::PromptPart>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) {
                      return x.text == y.text && x.from_user == y.from_user;
                    });
}

// A template skips the messages of a role that it does not know. That loses
// what the client said, so it is refused: the template leaves a role out if the
// prompt is the same without all messages of that role. One rendering for each
// of the first few rare roles of a request.
Status CheckRoles(const GenerateParts& parts, const models::ChatInput& input,
                  const std::vector<models::PromptPart>& rendered) {
  constexpr size_t kMostRoles = 4;
  std::vector<std::string> seen;
  for (size_t i = 0; i < input.messages->size(); ++i) {
    const auto role = (*input.messages)[i].value("role", std::string());
    if (IsCommonRole(role) || seen.size() == kMostRoles ||
        std::find(seen.begin(), seen.end(), role) != seen.end()) {
      continue;
    }
    seen.push_back(role);
    auto others = nlohmann::ordered_json::array();
    for (const auto& message : *input.messages) {
      if (message.value("role", std::string()) != role) {
        others.push_back(message);
      }
    }
    models::ChatInput without = input;
    without.messages = &others;
    const auto same = parts.chat_template->Render(without);
    if (!same.ok() || !IsSameText(*same, rendered)) continue;
    const std::string field = "messages[" + std::to_string(i) + "].role";
    return InvalidArgument(field + " is \"" + role +
                           "\", which the chat template of model '" +
                           parts.model + "' leaves out; it knows " +
                           RolesIn(parts.chat_template->source()))
        .At(field);
  }
  return OkStatus();
}

bool HasToolTurns(const nlohmann::ordered_json& messages) {
  return std::ranges::any_of(messages, [](const auto& message) {
    return message.value("role", "") == "tool" ||
           message.contains("tool_calls");
  });
}

// Whether a text ends with a tag, but for white space.
bool EndsWithTag(std::string_view text, std::string_view tag) {
  const size_t last = text.find_last_not_of(" \n\t\r");
  return last != std::string_view::npos &&
         text.substr(0, last + 1).ends_with(tag);
}

// Adds the beginning of a call that must come; reasoning that the prompt began
// is over.
Status AddForcedCall(const GenerateParts& parts, const ChatPrompt& chat,
                     std::vector<models::PromptPart>& rendered) {
  ASSIGN_OR_RETURN(std::string forced, ForcedCall(parts.formats, chat));
  if (forced.empty()) return OkStatus();
  const ReasoningFormat* reasoning = parts.formats.reasoning;
  if (reasoning != nullptr && !rendered.empty() &&
      (reasoning->always ||
       EndsWithTag(rendered.back().text, reasoning->open))) {
    forced = std::string(reasoning->close) + "\n\n" + forced;
  }
  rendered.push_back({std::move(forced), false});
  return OkStatus();
}

// The messages with an empty text for content that is null or left out, as a
// turn of calls alone has it; null where all have content.
nlohmann::ordered_json WithEmptyContent(
    const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json filled = messages;
  bool changed = false;
  for (auto& message : filled) {
    const auto content = message.find("content");
    if (content != message.end() && !content->is_null()) continue;
    message["content"] = "";
    changed = true;
  }
  return changed ? filled : nlohmann::ordered_json();
}

bool Continues(const ChatPrompt& chat) {
  if (chat.template_kwargs == nullptr) return false;
  const auto found = chat.template_kwargs->find(kContinueFinalMessage);
  return found != chat.template_kwargs->end() && *found == true;
}

// The text that a message ends with; empty where it has none.
std::string LastText(const nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array() || content->empty()) return "";
  const auto& part = content->back();
  const auto text = part.is_object() ? part.find("text") : part.end();
  return text != part.end() && text->is_string() ? text->get<std::string>()
                                                 : "";
}

// Where `wanted` stands last in the text of these parts with its end out of the
// request, not out of what the template wrote ("<" is in "<|im_end|>", too).
size_t FindLast(const std::vector<models::PromptPart>& rendered,
                const std::string& text, const std::string& wanted) {
  std::vector<size_t> ends;  // of the parts
  for (const models::PromptPart& part : rendered) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + part.text.size());
  }
  size_t found = text.rfind(wanted);
  while (found != text.npos) {
    const auto part =
        std::ranges::upper_bound(ends, found + wanted.size() - 1) -
        ends.begin();
    if (rendered[static_cast<size_t>(part)].from_user) break;
    found = found == 0 ? text.npos : text.rfind(wanted, found - 1);
  }
  return found;
}

// Cuts off what the template wrote behind the text of the last message. A
// template may have taken away the white space around it.
Status EndInLastMessage(const ChatPrompt& chat, const std::string& model,
                        std::vector<models::PromptPart>& rendered) {
  constexpr const char* kSpace = " \n\t\r";
  const std::string field =
      "messages[" + std::to_string(chat.messages->size() - 1) + "].content";
  const std::string last = LastText(chat.messages->back());
  const size_t begin = last.find_first_not_of(kSpace);
  if (begin == last.npos) {
    return InvalidArgument(field +
                           " is empty but continue_final_message is true, "
                           "which goes on with it; send its beginning")
        .At(field);
  }
  const size_t size = last.find_last_not_of(kSpace) + 1 - begin;
  std::string text;
  for (const models::PromptPart& part : rendered) text += part.text;
  const size_t found = FindLast(rendered, text, last.substr(begin, size));
  if (found == text.npos) {
    return InvalidArgument(field +
                           " is not in the prompt that the chat "
                           "template of model '" +
                           model +
                           "' makes, so that it cannot be continued; leave "
                           "continue_final_message out")
        .At(field);
  }
  size_t end = found + size;
  const std::string space = last.substr(begin + size);
  if (text.compare(end, space.size(), space) == 0) end += space.size();
  for (size_t i = 0; i < rendered.size(); ++i) {
    std::string& part = rendered[i].text;
    if (end > part.size()) {
      end -= part.size();
      continue;
    }
    part.resize(end);
    rendered.resize(i + 1);
  }
  return OkStatus();
}

}  // namespace

bool EndsInReasoning(const models::Tokenizer& tokenizer,
                     const ReasoningFormat& format,
                     std::span<const int32_t> prompt) {
  constexpr size_t kTailTokens = 16;
  const size_t tail = std::min(prompt.size(), kTailTokens);
  return EndsWithTag(tokenizer.Decode(prompt.last(tail), /*with_special=*/true),
                     format.open);
}

ParserSpec ParserSpecOf(const GenerateParts& parts, const ChatPrompt& chat,
                        std::span<const int32_t> prompt) {
  const OutputFormats& formats = parts.formats;
  ParserSpec spec;
  if (formats.tools != nullptr &&
      (chat.tools != nullptr || formats.tools->has_reasoning)) {
    spec.tools = formats.tools;
    spec.tool_names = chat.tool_choice.names;
    if (!chat.tool_choice.parallel) spec.most_calls = 1;
    // It was checked when the prompt was rendered.
    const auto forced = ForcedCall(formats, chat);
    if (forced.ok()) spec.forced = *forced;
  }
  if (formats.reasoning == nullptr || !chat.parse_reasoning ||
      !spec.forced.empty()) {
    return spec;
  }
  spec.reasoning = formats.reasoning;
  spec.in_reasoning =
      EndsInReasoning(*parts.tokenizer, *formats.reasoning, prompt);
  return spec;
}

const char* PromptField(const Prompt& prompt) {
  return std::holds_alternative<ChatPrompt>(prompt) ? "messages" : "prompt";
}

StatusOr<std::vector<models::PromptPart>> RenderChat(const GenerateParts& parts,
                                                     const ChatPrompt& chat) {
  if (parts.chat_template == nullptr) {
    return FailedPrecondition(
               "model '" + parts.model +
               "' has no chat template; send a plain prompt to "
               "/v1/completions, or start the server with --chat-template FILE")
        .At("messages")
        .Because("no_chat_template");
  }
  RETURN_IF_ERROR(CheckImages(parts, chat.images));
  models::ChatInput input;
  input.messages = chat.messages.get();
  nlohmann::ordered_json with_tools;
  if (!parts.formats.template_has_tools &&
      (chat.tools != nullptr || HasToolTurns(*chat.messages))) {
    with_tools = WithToolsAsText(*chat.messages, chat.tools.get());
    input.messages = &with_tools;
  }
  nlohmann::ordered_json in_parts;
  if (parts.images != nullptr) {
    in_parts = WithContentParts(*input.messages);
    input.messages = &in_parts;
  }
  input.tools = chat.tools.get();
  input.extra = chat.template_kwargs.get();
  input.add_generation_prompt = chat.add_generation_prompt && !Continues(chat);
  input.bos_token = parts.bos_text;
  input.eos_token = parts.eos_text;
  auto rendered = parts.chat_template->Render(input);
  nlohmann::ordered_json filled;
  if (!rendered.ok()) {
    // Some templates tell a turn of calls by its null, others need a text.
    filled = WithEmptyContent(*input.messages);
    if (!filled.is_null()) {
      input.messages = &filled;
      auto again = parts.chat_template->Render(input);
      if (again.ok()) rendered = std::move(again);
    }
  }
  if (!rendered.ok() && rendered.status().field().empty()) {
    return rendered.status().At("messages");
  }
  RETURN_IF_ERROR(rendered.status());
  RETURN_IF_ERROR(CheckRoles(parts, input, *rendered));
  if (Continues(chat)) {
    RETURN_IF_ERROR(EndInLastMessage(chat, parts.model, *rendered));
  }
  RETURN_IF_ERROR(AddForcedCall(parts, chat, *rendered));
  return rendered;
}

StatusOr<std::vector<int32_t>> EncodeChat(const GenerateParts& parts,
                                          const ChatPrompt& chat) {
  ASSIGN_OR_RETURN(auto rendered, RenderChat(parts, chat));
  if (!chat.images.empty()) {
    ASSIGN_OR_RETURN(const auto images, MeasureImages(parts, chat.images));
    RETURN_IF_ERROR(SpellImages(parts, images, rendered));
  }
  return EncodeRendered(parts, rendered);
}

StatusOr<std::vector<int32_t>> EncodePrediction(const GenerateParts& parts,
                                                const std::string& text,
                                                int64_t max_context) {
  std::vector<int32_t> ids;
  int64_t count = SurelyTooMany(*parts.tokenizer,
                                static_cast<int64_t>(text.size()), max_context);
  if (count == 0) {
    ids = parts.tokenizer->Encode(
        text, {.add_special = false, .parse_special = false});
    count = static_cast<int64_t>(ids.size());
  }
  if (count <= max_context) return ids;
  return InvalidArgument("prediction.content has " +
                         std::string(ids.empty() ? "at least " : "") +
                         std::to_string(count) + " tokens but model '" +
                         parts.model + "' has a context of " +
                         std::to_string(max_context) + "; shorten it")
      .At("prediction.content");
}

StatusOr<EncodedPrompt> EncodePrompt(
    const GenerateParts& parts, const Prompt& prompt, int64_t max_context,
    const models::vision::EncodedImages& images) {
  const char* field = PromptField(prompt);
  // Whether text of so many bytes can fit at all.
  const auto check_bytes = [&](int64_t bytes) {
    const int64_t least = SurelyTooMany(*parts.tokenizer, bytes, max_context);
    return scheduler::CheckContext(
        {.num_tokens = least, .at_least = true, .field = field}, 1, max_context,
        parts.model);
  };
  EncodedPrompt out;
  std::vector<int32_t>& ids = out.ids;
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
    ASSIGN_OR_RETURN(auto rendered, RenderChat(parts, *chat));
    RETURN_IF_ERROR(check_bytes(TextBytes(rendered)));
    RETURN_IF_ERROR(SpellImages(parts, images, rendered));
    ids = EncodeRendered(parts, rendered);
    ASSIGN_OR_RETURN(out.embeddings, PlaceImages(parts, images, ids));
  } else if (const auto* text = std::get_if<TextPrompt>(&prompt)) {
    RETURN_IF_ERROR(check_bytes(static_cast<int64_t>(text->text.size())));
    ASSIGN_OR_RETURN(auto rendered, RenderText(parts, *text));
    std::vector<models::PromptPart> spelt = {std::move(rendered)};
    RETURN_IF_ERROR(SpellImages(parts, images, spelt));
    ids = parts.tokenizer->Encode(spelt[0].text,
                                  {.add_special = true, .parse_special = true});
    ASSIGN_OR_RETURN(out.embeddings, PlaceImages(parts, images, ids));
  } else {
    ids = std::get<TokenPrompt>(prompt).ids;
    RETURN_IF_ERROR(scheduler::CheckTokenIds(ids, parts.tokenizer->size(),
                                             field, parts.model));
  }
  if (ids.empty()) {
    return InvalidArgument(std::string(field) +
                           " has no tokens but must have at least one; send "
                           "some text")
        .At(field);
  }
  return out;
}

}  // namespace millrace::handlers
