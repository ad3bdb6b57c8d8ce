// Scores of pairs of texts and classes of texts, as vLLM answers them:
// /v1/rerank (Jina's and Cohere's shape; text-embeddings-inference's where the
// request has `texts`), /v1/score, /classify. A model that embeds scores pairs
// by the cosine of their vectors; one with a single class that takes pairs
// scores single texts at /classify.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "handlers/json_fields.h"
#include "handlers/texts/pooling.h"
#include "server/http/routes.h"
#include "server/http/text_work.h"
#include "server/request_id.h"

namespace millrace::server::http {
namespace {

using Json = nlohmann::ordered_json;
using config::TaskKind;
using handlers::TextItem;
using handlers::TextRequest;
using handlers::TextResponse;
using handlers::TextTaskFacts;

// Texts to compare: item i is firsts[i or 0] with seconds[i].
struct Pairs {
  std::vector<std::string> firsts;  // as many as seconds, or one
  std::vector<std::string> seconds;
};

Status SetItems(const TextTaskFacts& facts, const Pairs& pairs,
                TextRequest& request) {
  const size_t num_firsts = pairs.firsts.size();
  if (facts.kind == TaskKind::kEmbed) {
    // Each text once.
    for (const auto* texts : {&pairs.firsts, &pairs.seconds}) {
      for (const std::string& text : *texts) {
        request.items.push_back({.text = text});
      }
    }
    if (request.items.size() <= TextRequest::kMaxItems) return OkStatus();
    return InvalidArgument(
        "the request has " + std::to_string(request.items.size()) +
        " texts; at most " + std::to_string(TextRequest::kMaxItems) +
        " are allowed");
  }
  for (size_t i = 0; i < pairs.seconds.size(); ++i) {
    request.items.push_back({.text = pairs.firsts[num_firsts == 1 ? 0 : i],
                             .pair = pairs.seconds[i]});
  }
  return OkStatus();
}

// One for each pair.
StatusOr<std::vector<double>> ScoresOf(const TextTaskFacts& facts,
                                       size_t num_firsts,
                                       const TextResponse& response) {
  std::vector<double> scores;
  if (facts.kind == TaskKind::kEmbed) {
    for (size_t i = num_firsts; i < response.rows.size(); ++i) {
      const size_t first = num_firsts == 1 ? 0 : i - num_firsts;
      scores.push_back(handlers::Cosine(response.rows[first].values,
                                        response.rows[i].values));
    }
    return scores;
  }
  for (const handlers::TextRow& row : response.rows) {
    if (row.values.size() != 1) {
      return InvalidArgument(
                 "the model gives " + std::to_string(row.values.size()) +
                 " scores for a pair of texts, not one; it classifies "
                 "(task: classify_text)")
          .At("model");
    }
    scores.push_back(row.values.front());
  }
  return scores;
}

std::vector<size_t> BestFirst(const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Finds the model, checks its task, reads what all these requests have.
StatusOr<ModelHandle> BorrowScorer(const Site& site, Exchange& exchange,
                                   const Json& body, const Pairs& pairs,
                                   std::string_view route,
                                   TextRequest& request) {
  RETURN_IF_ERROR(ReadTruncation(body, request));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowForTexts(site, exchange, body));
  ASSIGN_OR_RETURN(const handlers::TextHandler* handler, model->ForTexts());
  RETURN_IF_ERROR(WantTask(handler->facts(), model->id(),
                           {TaskKind::kRerank, TaskKind::kEmbed}, route));
  RETURN_IF_ERROR(SetItems(handler->facts(), pairs, request));
  return model;
}

// {"query", "texts"} → [{"index", "score"}].
HttpResponse TeiRanks(const std::vector<double>& scores,
                      const std::vector<std::string>& texts, bool with_text) {
  Json ranks = Json::array();
  for (const size_t i : BestFirst(scores)) {
    Json rank = {{"index", i}};
    if (with_text) rank["text"] = texts[i];
    rank["score"] = scores[i];
    ranks.push_back(std::move(rank));
  }
  return JsonResponse(200, DumpJson(ranks));
}

Status Rerank(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  const bool tei = handlers::FindField(body, "texts") != nullptr;
  Pairs pairs;
  ASSIGN_OR_RETURN(const auto query, handlers::ReadString(body, "query"));
  if (!query.has_value()) {
    return InvalidArgument("query is missing; send a text").At("query");
  }
  pairs.firsts = {*query};
  ASSIGN_OR_RETURN(pairs.seconds, ReadTexts(body, tei ? "texts" : "documents"));
  ASSIGN_OR_RETURN(const auto top_n,
                   handlers::ReadInt(body, "top_n", {.min = 0}));
  ASSIGN_OR_RETURN(const auto documents,
                   handlers::ReadBool(body, "return_documents"));
  ASSIGN_OR_RETURN(const auto texts, handlers::ReadBool(body, "return_text"));
  ASSIGN_OR_RETURN(const auto raw, handlers::ReadBool(body, "raw_scores"));
  TextRequest request;
  request.raw_scores = raw.value_or(false);
  ASSIGN_OR_RETURN(ModelHandle model, BorrowScorer(site, *exchange, body, pairs,
                                                   "/v1/rerank", request));
  const std::string name = model->id();
  const bool with_text = tei ? texts.value_or(false) : documents.value_or(true);
  size_t most = pairs.seconds.size();
  if (top_n.value_or(0) > 0) {
    most = std::min(most, static_cast<size_t>(*top_n));
  }
  return RunTexts(
      site, exchange, std::move(model), std::move(request),
      [name, tei, with_text, most, documents = std::move(pairs.seconds)](
          const TextTaskFacts& facts,
          const TextResponse& response) -> StatusOr<HttpResponse> {
        ASSIGN_OR_RETURN(const std::vector<double> scores,
                         ScoresOf(facts, 1, response));
        if (tei) return TeiRanks(scores, documents, with_text);
        Json results = Json::array();
        for (const size_t i : BestFirst(scores)) {
          if (results.size() == most) break;
          Json result = {{"index", i}};
          if (with_text) result["document"] = {{"text", documents[i]}};
          result["relevance_score"] = scores[i];
          results.push_back(std::move(result));
        }
        return JsonResponse(200,
                            DumpJson(Json{{"id", "rerank-" + RandomHex(32)},
                                          {"model", name},
                                          {"usage", TextUsage(response)},
                                          {"results", std::move(results)}}));
      });
}

Status Score(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  Pairs pairs;
  ASSIGN_OR_RETURN(pairs.firsts, ReadTexts(body, "text_1"));
  ASSIGN_OR_RETURN(pairs.seconds, ReadTexts(body, "text_2"));
  if (pairs.firsts.size() != 1 && pairs.firsts.size() != pairs.seconds.size()) {
    return InvalidArgument("text_1 has " + std::to_string(pairs.firsts.size()) +
                           " texts and text_2 " +
                           std::to_string(pairs.seconds.size()) +
                           "; send one in text_1, or as many as in text_2")
        .At("text_1");
  }
  TextRequest request;
  ASSIGN_OR_RETURN(ModelHandle model, BorrowScorer(site, *exchange, body, pairs,
                                                   "/v1/score", request));
  const std::string name = model->id();
  return RunTexts(
      site, exchange, std::move(model), std::move(request),
      [name, num_firsts = pairs.firsts.size()](
          const TextTaskFacts& facts,
          const TextResponse& response) -> StatusOr<HttpResponse> {
        ASSIGN_OR_RETURN(const std::vector<double> scores,
                         ScoresOf(facts, num_firsts, response));
        Json data = Json::array();
        for (size_t i = 0; i < scores.size(); ++i) {
          data.push_back(
              {{"index", i}, {"object", "score"}, {"score", scores[i]}});
        }
        return JsonResponse(200,
                            DumpJson(Json{{"id", "score-" + RandomHex(32)},
                                          {"object", "list"},
                                          {"created", CreatedNow()},
                                          {"model", name},
                                          {"data", std::move(data)},
                                          {"usage", TextUsage(response)}}));
      });
}

Status Classify(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(*exchange));
  TextRequest request;
  ASSIGN_OR_RETURN(request.items, ReadInputs(body, "input"));
  RETURN_IF_ERROR(ReadTruncation(body, request));
  ASSIGN_OR_RETURN(ModelHandle model, BorrowForTexts(site, *exchange, body));
  ASSIGN_OR_RETURN(const handlers::TextHandler* handler, model->ForTexts());
  RETURN_IF_ERROR(WantTask(handler->facts(), model->id(),
                           {TaskKind::kClassifyText, TaskKind::kRerank},
                           "/classify"));
  const std::string name = model->id();
  return RunTexts(
      site, exchange, std::move(model), std::move(request),
      [name](const TextTaskFacts& facts, const TextResponse& response) {
        Json data = Json::array();
        for (size_t i = 0; i < response.rows.size(); ++i) {
          const std::vector<float>& row = response.rows[i].values;
          const auto best = static_cast<size_t>(
              std::max_element(row.begin(), row.end()) - row.begin());
          data.push_back({{"index", i},
                          {"label", handlers::LabelOf(facts, best)},
                          {"probs", row},
                          {"num_classes", row.size()}});
        }
        return JsonResponse(200,
                            DumpJson(Json{{"id", "classify-" + RandomHex(32)},
                                          {"object", "list"},
                                          {"created", CreatedNow()},
                                          {"model", name},
                                          {"data", std::move(data)},
                                          {"usage", TextUsage(response)}}));
      });
}

}  // namespace

void ServeRerank(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Rerank);
}

void ServeScore(const Site& site, const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Score);
}

void ServeClassify(const Site& site,
                   const std::shared_ptr<Exchange>& exchange) {
  RunOnPool(site, exchange, Classify);
}

}  // namespace millrace::server::http
