// The handler itself holds nothing but its parts; each request is a session of
// its own. Sessions share the parts: they may outlive the handler for the
// moment after their end.
#include "handlers/generate.h"

#include <utility>

#include "config/base/utf8.h"
#include "handlers/generate_prompt.h"
#include "handlers/generate_session.h"
#include "scheduler/request.h"

namespace millrace::handlers {
namespace {

class Generate final : public GenerateHandler {
 public:
  explicit Generate(GenerateParts parts)
      : parts_(std::make_shared<const GenerateParts>(std::move(parts))) {}

  void Start(GenerateRequest request, std::shared_ptr<GenerateSink> sink,
             std::stop_token stop) override {
    std::make_shared<GenerateSession>(parts_, std::move(request),
                                      std::move(sink), std::move(stop))
        ->Begin();
  }

  void StartSiblings(GenerateRequest request,
                     std::vector<std::shared_ptr<GenerateSink>> sinks,
                     std::stop_token stop) override {
    std::vector<std::shared_ptr<GenerateSession>> siblings;
    for (size_t i = 1; i < sinks.size(); ++i) {
      // The first one encodes the prompt for all.
      siblings.push_back(std::make_shared<GenerateSession>(
          parts_,
          GenerateRequest{.prompt = TextPrompt{},
                          .options = request.options,
                          .deadline = request.deadline,
                          .trace = request.trace},
          std::move(sinks[i]), stop));
    }
    std::make_shared<GenerateSession>(parts_, std::move(request),
                                      std::move(sinks.at(0)), std::move(stop),
                                      std::move(siblings))
        ->Begin();
  }

  StatusOr<TokenizedText> Tokenize(const std::string& text, bool add_special,
                                   bool parse_special) const override {
    return WithPieces(parts_->tokenizer->Encode(
        text, {.add_special = add_special, .parse_special = parse_special}));
  }

  StatusOr<TokenizedText> TokenizeChat(const ChatPrompt& chat) const override {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeChat(*parts_, chat));
    return WithPieces(std::move(ids));
  }

  StatusOr<std::string> Detokenize(
      const std::vector<int32_t>& ids) const override {
    RETURN_IF_ERROR(scheduler::CheckTokenIds(ids, parts_->tokenizer->size(),
                                             "tokens", parts_->model));
    return ReplaceInvalidUtf8(
        parts_->tokenizer->Decode(ids, /*with_special=*/true));
  }

  StatusOr<std::string> ApplyTemplate(const ChatPrompt& chat) const override {
    ASSIGN_OR_RETURN(const auto rendered, RenderChat(*parts_, chat));
    std::string text;
    for (const models::PromptPart& part : rendered) text += part.text;
    return text;
  }

 private:
  TokenizedText WithPieces(std::vector<int32_t> ids) const {
    TokenizedText result;
    result.pieces.reserve(ids.size());
    for (const int32_t id : ids) {
      result.pieces.emplace_back(parts_->tokenizer->Piece(id, true));
    }
    result.ids = std::move(ids);
    return result;
  }

  // Shared with sessions that may outlive the handler by a moment.
  const std::shared_ptr<const GenerateParts> parts_;
};

}  // namespace

void GenerateHandler::StartSiblings(
    GenerateRequest request, std::vector<std::shared_ptr<GenerateSink>> sinks,
    std::stop_token stop) {
  request.options.n = 1;
  for (std::shared_ptr<GenerateSink>& sink : sinks) {
    Start(request, std::move(sink), stop);
    if (request.options.seed) ++*request.options.seed;
  }
}

std::unique_ptr<GenerateHandler> MakeGenerateHandler(GenerateParts parts) {
  return std::make_unique<Generate>(std::move(parts));
}

}  // namespace millrace::handlers
