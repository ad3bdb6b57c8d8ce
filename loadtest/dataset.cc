#include "loadtest/dataset.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace millrace::loadtest {
namespace {

using Json = nlohmann::json;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;
using Milliseconds = std::chrono::duration<double, std::milli>;

StatusOr<std::optional<double>> Number(const Json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || value->is_null()) return std::optional<double>();
  if (!value->is_number() || value->get<double>() < 0 ||
      value->get<double>() > 1e12) {
    return InvalidArgument(std::string(key) + " is " + value->dump() +
                           "; it must be a number from 0 to 1e12");
  }
  return value->get<double>();
}

StatusOr<int64_t> Length(const Json& object,
                         std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    ASSIGN_OR_RETURN(const auto value, Number(object, key));
    if (value) return static_cast<int64_t>(*value);
  }
  return -1;
}

Status ParseImages(const Json& object, Turn& turn) {
  const auto add = [&](const char* key, const Json& value) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return InvalidArgument(std::string("\"") + key +
                             "\" must name pictures by paths or addresses");
    }
    turn.images.push_back(value);
    return OkStatus();
  };
  if (const auto one = object.find("image"); one != object.end()) {
    RETURN_IF_ERROR(add("image", *one));
  }
  if (const auto many = object.find("images"); many != object.end()) {
    if (!many->is_array()) return add("images", Json());
    for (const Json& value : *many) RETURN_IF_ERROR(add("images", value));
  }
  return OkStatus();
}

StatusOr<Turn> ParseTurn(const Json& value) {
  Turn turn;
  if (value.is_string()) {
    turn.text = value;
    return turn;
  }
  if (!value.is_object() || !value.contains("text") ||
      !value["text"].is_string()) {
    return InvalidArgument(
        "a turn is neither a string nor an object with \"text\"");
  }
  turn.text = value["text"];
  RETURN_IF_ERROR(ParseImages(value, turn));
  ASSIGN_OR_RETURN(const auto delay, Number(value, "delay"));
  turn.delay = duration_cast<nanoseconds>(Milliseconds(delay.value_or(0)));
  ASSIGN_OR_RETURN(turn.output_tokens,
                   Length(value, {"output_length", "max_tokens"}));
  return turn;
}

Status ParseText(const Json& line, Conversation& conversation) {
  if (const auto turns = line.find("turns"); turns != line.end()) {
    if (!turns->is_array() || turns->empty()) {
      return InvalidArgument(
          "\"turns\" must be a list with one entry at least");
    }
    for (const Json& value : *turns) {
      ASSIGN_OR_RETURN(Turn turn, ParseTurn(value));
      conversation.turns.push_back(std::move(turn));
    }
    return OkStatus();
  }
  Turn turn;
  bool any = false;
  if (const auto messages = line.find("messages"); messages != line.end()) {
    if (!messages->is_array() || messages->empty()) {
      return InvalidArgument("\"messages\" must be a list with one at least");
    }
    conversation.messages = messages->dump();
    any = true;
  }
  for (const char* key : {"prompt", "text", "text_input", "input"}) {
    const auto value = line.find(key);
    if (any || value == line.end()) continue;
    if (!value->is_string()) {
      return InvalidArgument("\"" + std::string(key) + "\" must be a string");
    }
    turn.text = *value;
    any = true;
  }
  if (conversation.messages.empty()) RETURN_IF_ERROR(ParseImages(line, turn));
  ASSIGN_OR_RETURN(
      conversation.input_length,
      any ? StatusOr<int64_t>(-1) : Length(line, {"input_length"}));
  if (!any && conversation.input_length < 1) {
    return InvalidArgument(
        "there is nothing to send; give \"prompt\", \"turns\", \"messages\" or "
        "\"input_length\"");
  }
  conversation.turns.push_back(std::move(turn));
  return OkStatus();
}

StatusOr<Conversation> ParseLine(std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  if (!line.is_object()) return InvalidArgument("this is no JSON object");
  Conversation conversation;
  if (const auto system = line.find("system"); system != line.end()) {
    if (!system->is_string()) {
      return InvalidArgument("\"system\" must be a string");
    }
    conversation.system = *system;
  }
  RETURN_IF_ERROR(ParseText(line, conversation));
  ASSIGN_OR_RETURN(
      const int64_t output,
      Length(line, {"output_length", "max_tokens", "output_tokens"}));
  for (Turn& turn : conversation.turns) {
    if (turn.output_tokens < 0) turn.output_tokens = output;
  }
  ASSIGN_OR_RETURN(const auto due, Number(line, "timestamp"));
  if (due) conversation.due = duration_cast<nanoseconds>(Milliseconds(*due));
  return conversation;
}

}  // namespace

StatusOr<Dataset> ParseJsonl(std::string_view text) {
  Dataset dataset;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    StatusOr<Conversation> conversation = ParseLine(line);
    if (!conversation.ok()) {
      return std::move(conversation)
          .status()
          .Prefixed("line " + std::to_string(number));
    }
    dataset.push_back(std::move(conversation).value());
  }
  if (dataset.empty()) return InvalidArgument("the file holds no line");
  return dataset;
}

StatusOr<Dataset> LoadJsonl(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  StatusOr<Dataset> dataset = ParseJsonl(text);
  if (dataset.ok()) return dataset;
  return std::move(dataset).status().Prefixed("--dataset " + path);
}

StatusOr<std::vector<nanoseconds>> TraceOf(const Dataset& dataset,
                                           double speed) {
  std::vector<nanoseconds> due;
  for (size_t i = 0; i < dataset.size(); ++i) {
    const std::string where =
        "entry " + std::to_string(i + 1) + " of --dataset";
    if (!dataset[i].due) {
      return InvalidArgument(where +
                             " has no \"timestamp\", which --arrival "
                             "trace needs, in milliseconds");
    }
    if (i > 0 && *dataset[i].due < *dataset[i - 1].due) {
      return InvalidArgument(where +
                             " is due before the one above it; sort "
                             "the file by \"timestamp\"");
    }
    constexpr double kMostSeconds = 365 * 24 * 3600;
    const auto offset = *dataset[i].due - *dataset[0].due;
    const double ns = static_cast<double>(offset.count()) / speed;
    if (!(ns <= kMostSeconds * 1e9)) {
      std::ostringstream seconds;
      seconds << ns / 1e9;
      return InvalidArgument(where + " is due " + seconds.str() +
                             " seconds behind the first, but a trace may take "
                             "365 days; raise --trace-speed");
    }
    due.emplace_back(static_cast<int64_t>(ns));
  }
  return due;
}

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) {
    return NotFound("'" + path + "' cannot be read; is the path right?");
  }
  return std::move(text).str();
}

}  // namespace millrace::loadtest
