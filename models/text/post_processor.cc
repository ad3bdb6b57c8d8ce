// Sources: TemplateProcessing, BertProcessing and RobertaProcessing of
// tokenizers; its truncation "longest_first".
#include "models/text/post_processor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "models/text/hf_tokenizer_parts.h"

namespace millrace::models {

using hf::Find;
using hf::Json;

namespace {

constexpr JsonLimits kLimits = {.max_depth = 32, .max_values = 8'000'000};
constexpr size_t kMaxItems = 64;

Status Wrong(const Json& item) {
  return InvalidArgument("post_processor has " +
                         Shortened(DumpJson(item), 100) +
                         ", which is no part of a template");
}

}  // namespace

class TemplateReader {
 public:
  using Item = PostProcessor::Item;
  using Items = std::vector<Item>;

  TemplateReader(const Tokenizer& tokenizer, PostProcessor& out)
      : tokenizer_(tokenizer), out_(out) {}

  Status Read(const Json& processor) {
    const std::string type = hf::TypeOf(processor);
    if (type == "ByteLevel") return OkStatus();  // moves offsets only
    if (type == "TemplateProcessing") {
      RETURN_IF_ERROR(ReadItems(processor, "single", 1, out_.single_));
      return ReadItems(processor, "pair", 2, out_.pair_);
    }
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      ASSIGN_OR_RETURN(const int32_t cls, EndToken(processor, "cls"));
      ASSIGN_OR_RETURN(const int32_t sep, EndToken(processor, "sep"));
      out_ = type[0] == 'B' ? PostProcessor::Bert(cls, sep)
                            : PostProcessor::Roberta(cls, sep);
      return OkStatus();
    }
    if (type == "Sequence") {
      const Json* parts = Find(processor, "processors");
      if (parts == nullptr || !parts->is_array()) return Wrong(processor);
      for (const Json& part : *parts) {
        if (hf::TypeOf(part) == "Sequence") return Wrong(part);
        RETURN_IF_ERROR(Read(part));
      }
      return OkStatus();
    }
    return Unimplemented("the post_processor '" + Shortened(type, 60) +
                         "' is not supported");
  }

 private:
  // ["[CLS]", 101]
  StatusOr<int32_t> EndToken(const Json& processor, const char* key) const {
    const Json* token = Find(processor, key);
    if (token == nullptr || !token->is_array() || token->size() != 2) {
      return Wrong(processor);
    }
    return IdIn((*token)[1]);
  }

  StatusOr<int32_t> IdIn(const Json& value) const {
    ASSIGN_OR_RETURN(const int64_t id, hf::IdOf(value, "post_processor"));
    if (id >= tokenizer_.size()) {
      return InvalidArgument("post_processor has the id " + std::to_string(id) +
                             " but the vocabulary has " +
                             std::to_string(tokenizer_.size()) + " tokens");
    }
    return static_cast<int32_t>(id);
  }

  Status ReadItems(const Json& processor, const char* key, int num_texts,
                   Items& out) const {
    const Json* list = Find(processor, key);
    if (list == nullptr || !list->is_array()) return Wrong(processor);
    out.clear();
    int seen = 0;
    for (const Json& part : *list) {
      const Json* text = Find(part, "Sequence");
      const Json* special = Find(part, "SpecialToken");
      const Json& body = text != nullptr      ? *text
                         : special != nullptr ? *special
                                              : part;
      const Json* id = Find(body, "id");
      if (id == nullptr || !id->is_string()) return Wrong(part);
      Item item;
      if (const Json* type = Find(body, "type_id");
          type != nullptr && type->is_number_integer()) {
        item.type = static_cast<int32_t>(
            std::clamp<int64_t>(type->get<int64_t>(), 0, 1));
      }
      if (text != nullptr) {
        item.text = *id == "B" ? 1 : 0;
        if ((seen & (1 << item.text)) != 0) return Wrong(part);
        seen |= 1 << item.text;
        out.push_back(item);
      } else {
        RETURN_IF_ERROR(AddSpecial(processor, *id, item, out));
      }
      if (out.size() > kMaxItems) return Wrong(processor);
    }
    if (seen != (1 << num_texts) - 1) return Wrong(processor);
    return OkStatus();
  }

  // One name may stand for several tokens.
  Status AddSpecial(const Json& processor, const Json& name, Item item,
                    Items& out) const {
    const Json* specials = Find(processor, "special_tokens");
    const Json* special =
        specials == nullptr
            ? nullptr
            : Find(*specials, name.get_ref<const std::string&>().c_str());
    const Json* ids = special == nullptr ? nullptr : Find(*special, "ids");
    if (ids == nullptr || !ids->is_array() || ids->size() > kMaxItems) {
      return Wrong(name);
    }
    for (const Json& id : *ids) {
      ASSIGN_OR_RETURN(item.id, IdIn(id));
      out.push_back(item);
    }
    return OkStatus();
  }

  const Tokenizer& tokenizer_;
  PostProcessor& out_;
};

PostProcessor::PostProcessor()
    : single_{{.text = 0}}, pair_{{.text = 0}, {.text = 1, .type = 1}} {}

PostProcessor PostProcessor::Bert(int32_t cls_id, int32_t sep_id) {
  PostProcessor out;
  out.single_ = {{.id = cls_id}, {.text = 0}, {.id = sep_id}};
  out.pair_ = out.single_;
  out.pair_.push_back({.text = 1, .type = 1});
  out.pair_.push_back({.id = sep_id, .type = 1});
  return out;
}

PostProcessor PostProcessor::Around(int32_t first_id, int32_t last_id) {
  PostProcessor out;
  out.single_.clear();
  out.pair_.clear();
  const auto add = [&](int text, std::vector<Item>& items) {
    if (first_id >= 0) items.push_back({.id = first_id});
    items.push_back({.text = text});
    if (last_id >= 0) items.push_back({.id = last_id});
  };
  add(0, out.single_);
  add(0, out.pair_);
  add(1, out.pair_);
  return out;
}

PostProcessor PostProcessor::Roberta(int32_t cls_id, int32_t sep_id) {
  PostProcessor out;
  out.single_ = {{.id = cls_id}, {.text = 0}, {.id = sep_id}};
  out.pair_ = out.single_;
  out.pair_.push_back({.id = sep_id});
  out.pair_.push_back({.text = 1});
  out.pair_.push_back({.id = sep_id});
  return out;
}

StatusOr<PostProcessor> PostProcessor::FromJson(std::string_view tokenizer_json,
                                                const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(tokenizer_json, kLimits));
  PostProcessor out;
  const Json* processor = Find(root, "post_processor");
  if (processor != nullptr) {
    RETURN_IF_ERROR(TemplateReader(tokenizer, out).Read(*processor));
  }
  return out;
}

int64_t PostProcessor::NumAdded(bool pair) const {
  const std::vector<Item>& items = pair ? pair_ : single_;
  return std::count_if(items.begin(), items.end(),
                       [](const Item& item) { return item.text < 0; });
}

EncoderInput PostProcessor::Fill(const std::vector<Item>& items,
                                 std::span<const int32_t> text,
                                 std::span<const int32_t> pair) {
  EncoderInput out;
  for (const Item& item : items) {
    if (item.text < 0) {
      out.ids.push_back(item.id);
    } else {
      const std::span<const int32_t> ids = item.text == 0 ? text : pair;
      out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    }
    out.type_ids.resize(out.ids.size(), item.type);
  }
  return out;
}

EncoderInput PostProcessor::Of(std::span<const int32_t> text,
                               int64_t max_tokens) const {
  const int64_t room = std::max<int64_t>(max_tokens - NumAdded(false), 0);
  const auto most = std::min(text.size(), static_cast<size_t>(room));
  return Fill(single_, text.first(most), {});
}

EncoderInput PostProcessor::OfPair(std::span<const int32_t> text,
                                   std::span<const int32_t> pair,
                                   int64_t max_tokens) const {
  const int64_t room = std::max<int64_t>(max_tokens - NumAdded(true), 0);
  auto shorter = static_cast<int64_t>(text.size());
  auto longer = static_cast<int64_t>(pair.size());
  if (shorter + longer > room) {
    const bool swapped = shorter > longer;
    if (swapped) std::swap(shorter, longer);
    longer = shorter > room ? shorter : std::max(shorter, room - shorter);
    if (shorter + longer > room) {
      shorter = room / 2;
      longer = shorter + room % 2;
    }
    if (swapped) std::swap(shorter, longer);
  }
  return Fill(pair_, text.first(static_cast<size_t>(shorter)),
              pair.first(static_cast<size_t>(longer)));
}

}  // namespace millrace::models
