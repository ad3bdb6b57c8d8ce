#include "loadtest/requests.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "loadtest/fetch.h"

namespace millrace::loadtest {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

class FixedRequests final : public Requests {
 public:
  explicit FixedRequests(std::vector<std::string> bytes)
      : bytes_(std::move(bytes)) {}

  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::string_view Bytes(int64_t conversation, int64_t,
                         const std::vector<std::string>&,
                         std::string&) const override {
    return bytes_[conversation];
  }

 private:
  const std::vector<std::string> bytes_;
};

class TextRequests final : public Requests {
 public:
  TextRequests(const Options& options, std::string_view model, Dataset dataset)
      : options_(options), model_(model), dataset_(std::move(dataset)) {
    path_ = !options.path.empty()
                ? options.path
                : EndpointPath(options.endpoint, model, options.url.prefix);
    for (const Conversation& conversation : dataset_) {
      first_.push_back(Make(conversation, 0, {}));
    }
  }

  int64_t size() const override {
    return static_cast<int64_t>(dataset_.size());
  }
  int64_t NumTurns(int64_t conversation) const override {
    return static_cast<int64_t>(dataset_[conversation].turns.size());
  }
  std::chrono::nanoseconds Delay(int64_t conversation,
                                 int64_t turn) const override {
    return dataset_[conversation].turns[turn].delay;
  }
  std::string_view Bytes(int64_t conversation, int64_t turn,
                         const std::vector<std::string>& replies,
                         std::string& scratch) const override {
    if (turn == 0) return first_[conversation];
    scratch = Make(dataset_[conversation], turn, replies);
    return scratch;
  }

 private:
  static Json Messages(const Conversation& conversation, int64_t turn,
                       const std::vector<std::string>& replies) {
    if (!conversation.messages.empty()) {
      return Json::parse(conversation.messages, nullptr, false);
    }
    Json messages = Json::array();
    const auto say = [&](const char* role, const std::string& text) {
      messages.push_back({{"role", role}, {"content", text}});
    };
    if (!conversation.system.empty()) say("system", conversation.system);
    for (int64_t i = 0; i <= turn; ++i) {
      const Turn& said = conversation.turns[i];
      if (said.images.empty()) {
        say("user", said.text);
      } else {
        messages.push_back({{"role", "user"}, {"content", Parts(said)}});
      }
      if (i < turn) say("assistant", replies[i]);
    }
    return messages;
  }

  static Json Parts(const Turn& turn) {
    Json parts = Json::array();
    parts.push_back({{"type", "text"}, {"text", turn.text}});
    for (const std::string& image : turn.images) {
      parts.push_back({{"type", "image_url"}, {"image_url", {{"url", image}}}});
    }
    return parts;
  }

  static std::string Prompt(const Conversation& conversation, int64_t turn,
                            const std::vector<std::string>& replies) {
    std::string prompt = conversation.system;
    for (int64_t i = 0; i <= turn; ++i) {
      if (!prompt.empty()) prompt += "\n";
      prompt += conversation.turns[i].text;
      if (i < turn) prompt += "\n" + replies[i];
    }
    return prompt;
  }

  std::string Make(const Conversation& conversation, int64_t turn,
                   const std::vector<std::string>& replies) const {
    Json body = {{"model", model_}};
    switch (options_.endpoint) {
      case EndpointType::kChat:
        body["messages"] = Messages(conversation, turn, replies);
        break;
      case EndpointType::kEmbeddings:
        body["input"] = Prompt(conversation, turn, replies);
        break;
      default:
        body["prompt"] = Prompt(conversation, turn, replies);
    }
    if (options_.streaming) {
      body["stream"] = true;
      body["stream_options"] = {{"include_usage", true}};
    }
    const int64_t output = conversation.turns[turn].output_tokens;
    if (output > 0 && Generates(options_.endpoint)) {
      body["max_tokens"] = output;
      if (options_.ignore_eos) {
        body["min_tokens"] = output;
        body["ignore_eos"] = true;
      }
    }
    for (const auto& [key, value] : options_.extra_inputs) {
      body[key] = Json::parse(value, nullptr, false);
    }
    return HttpRequest(options_, "POST", path_,
                       body.dump(-1, ' ', false, kReplace));
  }

  const Options options_;
  const std::string model_;
  std::string path_;
  const Dataset dataset_;
  std::vector<std::string> first_;  // whole requests of the first turns
};

}  // namespace

std::unique_ptr<Requests> MakeTextRequests(const Options& options,
                                           std::string_view model,
                                           Dataset dataset) {
  return std::make_unique<TextRequests>(options, model, std::move(dataset));
}

std::unique_ptr<Requests> MakeFixedRequests(std::vector<std::string> bytes) {
  return std::make_unique<FixedRequests>(std::move(bytes));
}

}  // namespace millrace::loadtest
