// What stands around a text, or around two, before an encoder reads them:
// "[CLS] a [SEP]" and "[CLS] a [SEP] b [SEP]", each token with its type id.
// From the post_processor of a tokenizer.json.
//
//   ASSIGN_OR_RETURN(auto form, PostProcessor::FromJson(json, *tokenizer));
//   EncoderInput input = form.Of(ids_of_a, /*max_tokens=*/512);
//
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

struct EncoderInput {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;  // as many
};

class PostProcessor {
 public:
  PostProcessor();  // nothing around a text, two one behind the other

  static StatusOr<PostProcessor> FromJson(std::string_view tokenizer_json,
                                          const Tokenizer& tokenizer);
  // "<cls> a <sep>", "<cls> a <sep> b <sep>"; the second text has type 1.
  static PostProcessor Bert(int32_t cls_id, int32_t sep_id);
  // "<first> a <last>", "<first> a <last> <first> b <last>"; below 0: neither.
  static PostProcessor Around(int32_t first_id, int32_t last_id);
  // "<s> a </s>", "<s> a </s> </s> b </s>"; all of type 0.
  static PostProcessor Roberta(int32_t cls_id, int32_t sep_id);

  // Texts that are too long lose their ends; of two, the longer one first, as
  // with "longest_first" of tokenizers. max_tokens is at least what stands
  // around them.
  EncoderInput Of(std::span<const int32_t> text, int64_t max_tokens) const;
  EncoderInput OfPair(std::span<const int32_t> text,
                      std::span<const int32_t> pair, int64_t max_tokens) const;
  // How many tokens stand around one text, or around two.
  int64_t NumAdded(bool pair) const;

 private:
  struct Item {
    int text = -1;  // 0 or 1: that text, else:
    int32_t id = -1;
    int32_t type = 0;
  };
  friend class TemplateReader;
  static EncoderInput Fill(const std::vector<Item>& items,
                           std::span<const int32_t> text,
                           std::span<const int32_t> pair);

  std::vector<Item> single_;
  std::vector<Item> pair_;
};

}  // namespace millrace::models
