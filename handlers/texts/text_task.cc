// Texts are sorted by length and go to the graph in groups of one padded
// length, a few groups at a time, so that one request does not fill the queue.
// Padding: the graph's attention mask hides it. How much there is follows from
// a text's own length alone, never from its neighbours: a text has the same
// bits whatever stands beside it. A graph without a mask gets no padding.
#include "handlers/texts/text_task.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "config/base/mutex.h"
#include "config/base/out_of_memory.h"
#include "config/base/utf8.h"
#include "handlers/make_task.h"
#include "handlers/texts/pooling.h"
#include "handlers/texts/text_files.h"
#include "handlers/texts/text_ports.h"

namespace millrace::handlers {
namespace {

using config::TaskKind;
using models::EncoderInput;

// Requests to the graph that are under way for one request of texts.
constexpr int64_t kWindow = 2;
// Padded tokens of one of them at most.
constexpr int64_t kMostTokens = 16384;

// One request's texts on their way.
struct Work {
  TextRequest request;
  TextHandler::Done done;
  std::stop_token stop;
  std::vector<EncoderInput> inputs;
  struct Group {
    int64_t length;  // padded
    std::vector<size_t> items;
  };
  std::vector<Group> groups;

  Mutex mu;
  size_t next GUARDED_BY(mu) = 0;      // group
  size_t num_open GUARDED_BY(mu) = 0;  // begun and not ended
  Status failure GUARDED_BY(mu);       // of the first group that failed
  bool ended GUARDED_BY(mu) = false;
  TextResponse response;  // each group writes rows of its own
};

class GraphTexts final : public TextHandler {
 public:
  GraphTexts(const TaskParts& parts, TextFiles files, TextPorts ports)
      : parts_(parts), files_(std::move(files)), ports_(std::move(ports)) {
    facts_ = {.kind = parts.settings->kind,
              .max_tokens = files_.max_tokens,
              .labels = files_.labels,
              .top_k = parts.settings->top_k};
    if (ports_.fixed_length > 0) {
      facts_.max_tokens = std::min(facts_.max_tokens, ports_.fixed_length);
    }
  }

  void Start(TextRequest request, Done done, std::stop_token stop) override {
    auto work = std::make_shared<Work>();
    work->request = std::move(request);
    work->done = std::move(done);
    work->stop = std::move(stop);
    if (const Status status = Prepare(*work); !status.ok()) {
      return work->done(status);
    }
    for (int64_t i = 0; i < kWindow; ++i) StartNext(work);
  }

  const TextTaskFacts& facts() const override { return facts_; }

 private:
  Status Prepare(Work& work) const {
    const std::vector<TextItem>& items = work.request.items;
    if (items.empty() || items.size() > TextRequest::kMaxItems) {
      return InvalidArgument(
          "the request has " + std::to_string(items.size()) + " texts; 1 to " +
          std::to_string(TextRequest::kMaxItems) + " are allowed");
    }
    for (const TextItem& item : items) {
      if (work.stop.stop_requested()) return Cancelled("the client left");
      if (Clock::Real().Now() >= work.request.deadline) {
        return DeadlineExceeded(
            "the deadline passed while the texts were read; give the request "
            "more time or send fewer");
      }
      StatusOr<EncoderInput> input = Encode(work.request, item);
      if (!input.ok()) {
        return items.size() == 1
                   ? input.status()
                   : input.status().Prefixed(
                         "text " + std::to_string(work.inputs.size()));
      }
      work.inputs.push_back(*std::move(input));
    }
    work.response.rows.resize(items.size());
    MakeGroups(work);
    return OkStatus();
  }

  StatusOr<EncoderInput> Encode(const TextRequest& request,
                                const TextItem& item) const {
    int64_t limit = facts_.max_tokens;
    if (request.max_tokens) limit = std::min(limit, *request.max_tokens);
    const bool cuts = request.truncate || request.max_tokens.has_value() ||
                      parts_.settings->text.auto_truncate;
    if (item.ids.has_value()) return GivenIds(*item.ids, limit, cuts);
    const int64_t around = files_.form.NumAdded(item.pair.has_value());
    if (limit < around + 1) {
      return InvalidArgument("a limit of " + std::to_string(limit) +
                             " tokens leaves no room for a text: " +
                             std::to_string(around) + " stand around it");
    }
    for (const std::string* text :
         {&item.text, item.pair ? &*item.pair : &item.text}) {
      if (IsValidUtf8(*text)) continue;
      return InvalidArgument("the text is not valid UTF-8 at byte " +
                             std::to_string(ValidUtf8Prefix(*text)) +
                             "; send text, not a file of another kind")
          .At("inputs");
    }
    const auto ids_of = [&](const std::string& text) {
      return files_.tokenizer->Encode(text, {.parse_special = true});
    };
    const std::vector<int32_t> first = ids_of(item.text);
    const std::vector<int32_t> second =
        item.pair ? ids_of(*item.pair) : std::vector<int32_t>();
    const int64_t whole =
        static_cast<int64_t>(first.size() + second.size()) + around;
    if (whole > limit && !cuts) return TooLong(whole);
    EncoderInput input = item.pair ? files_.form.OfPair(first, second, limit)
                                   : files_.form.Of(first, limit);
    if (input.ids.empty()) {
      return InvalidArgument(
          "a text has no tokens; send one that is not empty");
    }
    return input;
  }

  StatusOr<EncoderInput> GivenIds(const std::vector<int32_t>& ids,
                                  int64_t limit, bool cuts) const {
    if (ids.empty()) return InvalidArgument("a list of token ids is empty");
    for (const int32_t id : ids) {
      if (id >= 0 && id < files_.tokenizer->size()) continue;
      return InvalidArgument("the token id " + std::to_string(id) +
                             " is not one of 0 to " +
                             std::to_string(files_.tokenizer->size() - 1));
    }
    const auto whole = static_cast<int64_t>(ids.size());
    if (whole > limit && !cuts) return TooLong(whole);
    EncoderInput out;
    out.ids.assign(ids.begin(), ids.begin() + std::min(whole, limit));
    out.type_ids.resize(out.ids.size());
    return out;
  }

  Status TooLong(int64_t tokens) const {
    return InvalidArgument(
               "the text has " + std::to_string(tokens) +
               " tokens but model '" + parts_.model + "' takes " +
               std::to_string(facts_.max_tokens) +
               "; shorten it, or ask for truncation (truncate_prompt_tokens)")
        .Because("context_length_exceeded");
  }

  void MakeGroups(Work& work) const {
    std::vector<size_t> order(work.inputs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto length = [&](size_t i) {
      return ports_.PaddedLength(
          static_cast<int64_t>(work.inputs[i].ids.size()), facts_.max_tokens);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return length(a) < length(b); });
    for (const size_t i : order) {
      const int64_t padded = length(i);
      const int64_t most =
          std::clamp<int64_t>(kMostTokens / padded, 1, parts_.max_rows);
      if (work.groups.empty() || work.groups.back().length != padded ||
          static_cast<int64_t>(work.groups.back().items.size()) >= most) {
        work.groups.push_back({padded, {}});
      }
      work.groups.back().items.push_back(i);
    }
  }

  void StartNext(const std::shared_ptr<Work>& work) {
    size_t group = 0;
    {
      MutexLock lock(work->mu);
      if (work->ended || work->next == work->groups.size()) return;
      group = work->next++;
      ++work->num_open;
    }
    const Status status = CatchOutOfMemory([&] {
      TensorRequest request;
      request.inputs = ports_.Fill(work->inputs, work->groups[group].items,
                                   work->groups[group].length, files_.pad_id);
      request.outputs = {ports_.output};
      request.priority = work->request.priority;
      request.deadline = work->request.deadline;
      request.trace = work->request.trace;
      parts_.tensors->Start(
          std::move(request),
          [this, work, group](const StatusOr<TensorResponse>& answer) {
            OnGroup(work, group, answer);
          },
          work->stop);
      return OkStatus();
    });
    // The group has begun, so that it must end.
    if (!status.ok()) OnGroup(work, group, status);
  }

  void OnGroup(const std::shared_ptr<Work>& work, size_t group,
               const StatusOr<TensorResponse>& answer) {
    Status status = answer.status();
    if (status.ok()) {
      status =
          CatchOutOfMemory([&] { return TakeRows(*work, group, *answer); });
    }
    bool last = false;
    {
      MutexLock lock(work->mu);
      --work->num_open;
      if (!status.ok() && work->failure.ok()) work->failure = status;
      status = work->failure;
      if (!status.ok()) work->next = work->groups.size();
      last = work->next == work->groups.size();
      // The end lets go of the model, which the groups under way still need.
      if (last && (work->num_open > 0 || work->ended)) return;
      work->ended = last;
    }
    if (!last) return StartNext(work);
    if (!status.ok()) return work->done(status);
    work->done(std::move(work->response));
  }

  Status TakeRows(Work& work, size_t group,
                  const TensorResponse& answer) const {
    const models::Tensor& tensor = answer.outputs.front().tensor;
    const std::vector<size_t>& items = work.groups[group].items;
    const auto num_rows = static_cast<int64_t>(items.size());
    const models::Shape& shape = tensor.shape();
    const int rank = shape.rank();
    const bool fits = tensor.dtype() == models::DType::kF32 && rank >= 2 &&
                      rank <= 3 && shape[0] == num_rows &&
                      (rank == 2 ? facts_.kind != TaskKind::kTokenClassify
                                 : shape[1] == work.groups[group].length) &&
                      shape[rank - 1] > 0;
    if (!fits) {
      return Internal("the output '" + ports_.output + "' of model '" +
                      parts_.model + "' is " +
                      models::TypeText(tensor.dtype(), shape) +
                      ", which is no row for each text");
    }
    const int64_t size = shape[rank - 1];
    const int64_t stride = tensor.num_elements() / num_rows;
    for (int64_t r = 0; r < num_rows; ++r) {
      const size_t item = items[static_cast<size_t>(r)];
      const auto tokens = static_cast<int64_t>(work.inputs[item].ids.size());
      const std::span<const float> values(tensor.data<float>() + r * stride,
                                          static_cast<size_t>(stride));
      TextRow& row = work.response.rows[item];
      row.num_tokens = tokens;
      if (facts_.kind == TaskKind::kTokenClassify) {
        const auto own = values.first(static_cast<size_t>(tokens * size));
        row.values.assign(own.begin(), own.end());
        RETURN_IF_ERROR(CheckNumbers(work, item));
        continue;
      }
      row.values = rank == 2 ? std::vector<float>(values.begin(), values.end())
                             : PoolTokens(files_.pooling, values, tokens, size);
      RETURN_IF_ERROR(Finish(work.request, row.values));
      RETURN_IF_ERROR(CheckNumbers(work, item));
    }
    return OkStatus();
  }

  // A class may be out of the question: its raw score is -inf.
  Status CheckNumbers(const Work& work, size_t item) const {
    const bool of_classes = facts_.kind == TaskKind::kClassifyText ||
                            facts_.kind == TaskKind::kTokenClassify;
    const auto fits = [&](float value) {
      return of_classes ? !std::isnan(value) : std::isfinite(value);
    };
    const std::vector<TextRow>& rows = work.response.rows;
    if (std::ranges::all_of(rows[item].values, fits)) return OkStatus();
    return Internal("model '" + parts_.model + "' gave NaN or infinity" +
                    (rows.size() > 1 ? " for text " + std::to_string(item)
                                     : std::string()));
  }

  Status Finish(const TextRequest& request, std::vector<float>& row) const {
    if (facts_.kind != TaskKind::kEmbed) {
      const std::string& activation = parts_.settings->activation;
      if (request.raw_scores || activation == "none") return OkStatus();
      activation == "sigmoid" || row.size() == 1 ? Sigmoid(row) : Softmax(row);
      return OkStatus();
    }
    if (request.dimensions) {
      if (*request.dimensions > static_cast<int64_t>(row.size())) {
        return InvalidArgument(
                   "dimensions is " + std::to_string(*request.dimensions) +
                   " but vectors of model '" + parts_.model + "' have " +
                   std::to_string(row.size()) + "; lower dimensions")
            .At("dimensions");
      }
      row.resize(static_cast<size_t>(*request.dimensions));
    }
    if (request.normalize.value_or(files_.normalize)) Normalise(row);
    return OkStatus();
  }

  const TaskParts parts_;
  const TextFiles files_;
  const TextPorts ports_;
  TextTaskFacts facts_;  // not changed after construction
};

}  // namespace

int64_t TextResponse::num_tokens() const {
  int64_t sum = 0;
  for (const TextRow& row : rows) sum += row.num_tokens;
  return sum;
}

std::string LabelOf(const TextTaskFacts& facts, size_t class_idx) {
  if (class_idx < facts.labels.size() && !facts.labels[class_idx].empty()) {
    return facts.labels[class_idx];
  }
  return "LABEL_" + std::to_string(class_idx);
}

StatusOr<std::unique_ptr<TextHandler>> MakeTextHandler(const TaskParts& parts) {
  ASSIGN_OR_RETURN(TextFiles files, ReadTextFiles(parts));
  return MakeTextHandler(parts, std::move(files));
}

StatusOr<std::unique_ptr<TextHandler>> MakeTextHandler(const TaskParts& parts,
                                                       TextFiles files) {
  ASSIGN_OR_RETURN(TextPorts ports,
                   TextPorts::Find(*parts.tensors, parts.settings->kind));
  return std::make_unique<GraphTexts>(parts, std::move(files),
                                      std::move(ports));
}

}  // namespace millrace::handlers
