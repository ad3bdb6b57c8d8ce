// One reader for each shape of reply. Streams are parsed event by event; other
// bodies are kept whole and parsed at the end, after the clock was read.
#include "loadtest/body_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loadtest/sse.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxExample = 200;  // bytes of a reply in an error

std::string Excerpt(std::string_view text) {
  std::string out(text.substr(0, kMaxExample));
  if (text.size() > kMaxExample) out += "...";
  return out;
}

void Fail(RequestRecord& record, Outcome outcome, std::string_view why,
          std::string_view body) {
  record.outcome = outcome;
  record.error = std::string(why) + ": " + Excerpt(body);
}

// llama.cpp's `timings`, which say what the server spent.
void ReadTimings(const Json& body, RequestRecord& record) {
  const auto timings = body.find("timings");
  if (timings == body.end() || !timings->is_object()) return;
  const auto read = [&](const char* key, double& out) {
    const auto value = timings->find(key);
    if (value != timings->end() && value->is_number()) out = *value;
  };
  read("prompt_ms", record.server_prefill_ms);
  read("predicted_ms", record.server_decode_ms);
}

void ReadUsage(const Json& body, RequestRecord& record) {
  ReadTimings(body, record);
  const auto usage = body.find("usage");
  if (usage == body.end() || !usage->is_object()) return;
  const auto read = [&](const char* key, int64_t& out) {
    const auto value = usage->find(key);
    if (value != usage->end() && value->is_number_integer()) out = *value;
  };
  read("prompt_tokens", record.input_tokens);
  read("completion_tokens", record.output_tokens);
}

// The text of a choice: of a delta, a message, or of a completion. A delta's
// reasoning and tool calls are output as well.
bool AppendText(const Json& choice, std::string& text) {
  const auto append = [&](const Json& object, const char* key) {
    const auto value = object.find(key);
    if (value == object.end() || !value->is_string()) return false;
    const auto& piece = value->get_ref<const std::string&>();
    text += piece;
    return !piece.empty();
  };
  bool any = append(choice, "text");
  for (const char* part : {"delta", "message"}) {
    const auto object = choice.find(part);
    if (object == choice.end() || !object->is_object()) continue;
    any |= append(*object, "content");
    for (const char* other : {"reasoning_content", "reasoning"}) {
      const auto value = object->find(other);
      any |= value != object->end() && value->is_string() &&
             !value->get_ref<const std::string&>().empty();
    }
    const auto calls = object->find("tool_calls");
    any |= calls != object->end() && calls->is_array() && !calls->empty();
  }
  return any;
}

// chat and completions with `stream`: events of JSON, then [DONE].
class OpenAiStreamReader final : public BodyReader {
 public:
  void Begin(int64_t) override {
    parser_.Reset();
    text_.clear();
    done_ = false;
  }

  void Add(std::string_view bytes, Time now, RequestRecord& record) override {
    parser_.Add(bytes,
                [&](std::string_view data) { OnEvent(data, now, record); });
  }

  void End(RequestRecord& record) override {
    if (record.outcome != Outcome::kOk) return;
    if (!done_) return Cut(record);
    if (record.output_tokens < 0) {
      record.output_tokens = static_cast<int64_t>(record.chunk_times.size());
    }
  }

  void Cut(RequestRecord& record) override {
    if (record.outcome != Outcome::kOk) return;
    record.outcome = Outcome::kTruncatedStream;
    record.error = "the stream ended without [DONE], after " +
                   std::to_string(record.chunk_times.size()) +
                   " chunks with output";
  }

  std::string_view text() const override { return text_; }

 private:
  void OnEvent(std::string_view data, Time now, RequestRecord& record) {
    if (record.outcome != Outcome::kOk) return;
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const Json event = Json::parse(data, nullptr, false);
    if (!event.is_object()) {
      return Fail(record, Outcome::kWrongJson, "an event is no JSON object",
                  data);
    }
    if (event.contains("error") && !event["error"].is_null()) {
      return Fail(record, Outcome::kStreamError, "the stream holds an error",
                  data);
    }
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array()) {
      return Fail(record, Outcome::kWrongJson, "an event has no choices", data);
    }
    bool any = false;
    for (const Json& choice : *choices) {
      if (!choice.is_object()) {
        return Fail(record, Outcome::kWrongJson, "a choice is no object", data);
      }
      any |= AppendText(choice, text_);
    }
    if (any) record.chunk_times.push_back(now);
    ReadUsage(event, record);
  }

  SseParser parser_;
  std::string text_;
  bool done_ = false;
};

// A reply of one JSON object, kept whole.
class JsonReader : public BodyReader {
 public:
  void Begin(int64_t) override { body_.clear(); }
  void Add(std::string_view bytes, Time, RequestRecord&) override {
    body_ += bytes;
  }

 protected:
  // The object; null, and the record failed, if the body is none.
  Json Parse(std::string_view text, RequestRecord& record) const {
    Json body = Json::parse(text, nullptr, false);
    if (body.is_object()) return body;
    Fail(record, Outcome::kWrongJson, "the reply is no JSON object", text);
    return nullptr;
  }

  std::string body_;
};

class OpenAiReader final : public JsonReader {
 public:
  void End(RequestRecord& record) override {
    text_.clear();
    const Json body = Parse(body_, record);
    if (body.is_null()) return;
    const auto choices = body.find("choices");
    if (choices == body.end() || !choices->is_array() || choices->empty() ||
        !choices->front().is_object()) {
      return Fail(record, Outcome::kWrongJson, "the reply has no choices",
                  body_);
    }
    AppendText(choices->front(), text_);
    ReadUsage(body, record);
  }

  std::string_view text() const override { return text_; }

 private:
  std::string text_;
};

class EmbeddingsReader final : public JsonReader {
 public:
  void End(RequestRecord& record) override {
    const Json body = Parse(body_, record);
    if (body.is_null()) return;
    const auto data = body.find("data");
    if (data == body.end() || !data->is_array() || data->empty()) {
      return Fail(record, Outcome::kWrongJson, "the reply has no data", body_);
    }
    ReadUsage(body, record);
  }
};

// KServe v2: JSON, or JSON followed by the tensors' bytes.
class KserveReader final : public JsonReader {
 public:
  void Begin(int64_t json_bytes) override {
    JsonReader::Begin(json_bytes);
    json_bytes_ = json_bytes;
  }

  void End(RequestRecord& record) override {
    std::string_view text = body_;
    if (json_bytes_ > static_cast<int64_t>(text.size())) {
      return Fail(record, Outcome::kProtocol,
                  "Inference-Header-Content-Length is larger than the body",
                  text);
    }
    if (json_bytes_ >= 0) text = text.substr(0, json_bytes_);
    const Json body = Parse(text, record);
    if (body.is_null()) return;
    if (!body.contains("outputs") || !body["outputs"].is_array()) {
      Fail(record, Outcome::kWrongJson, "the reply has no outputs", text);
    }
  }

 private:
  int64_t json_bytes_ = -1;
};

// TorchServe: whatever the model's handler returns.
class BytesReader final : public BodyReader {
 public:
  void Begin(int64_t) override {}
  void Add(std::string_view, Time, RequestRecord&) override {}
  void End(RequestRecord&) override {}
};

}  // namespace

void BodyReader::Cut(RequestRecord& record) {
  if (record.outcome != Outcome::kOk) return;
  record.outcome = Outcome::kConnectionLost;
  record.error = "the connection closed before the reply was complete";
}

std::unique_ptr<BodyReader> MakeBodyReader(EndpointType type, bool streaming) {
  switch (type) {
    case EndpointType::kChat:
    case EndpointType::kCompletions:
      if (streaming) return std::make_unique<OpenAiStreamReader>();
      return std::make_unique<OpenAiReader>();
    case EndpointType::kEmbeddings:
      return std::make_unique<EmbeddingsReader>();
    case EndpointType::kKserve:
      return std::make_unique<KserveReader>();
    case EndpointType::kKserveGrpc:
    case EndpointType::kTorchserve:
      return std::make_unique<BytesReader>();
  }
  return nullptr;
}

}  // namespace millrace::loadtest
