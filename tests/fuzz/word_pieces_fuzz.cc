// A tokenizer.json from outside, and a text behind its NUL byte: whatever is
// accepted encodes the text into ids of its vocabulary, within the limit.
#include <cstdint>
#include <string_view>

#include "models/text/hf_tokenizer.h"
#include "models/text/post_processor.h"

using millrace::models::EncoderInput;
using millrace::models::PostProcessor;
using millrace::models::ReadHfTokenizer;
using millrace::models::Tokenizer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find('\0');
  const std::string_view json = all.substr(0, end);
  const std::string_view text =
      end == std::string_view::npos ? all : all.substr(end + 1);
  auto vocabulary = ReadHfTokenizer(json, {.template_apart = true});
  if (!vocabulary.ok() || vocabulary->model != "bert") return 0;
  const auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
  if (!tokenizer.ok()) return 0;
  const auto form = PostProcessor::FromJson(json, **tokenizer);
  if (!form.ok()) return 0;
  const auto ids = (*tokenizer)->Encode(text, {.parse_special = true});
  const int64_t limit = 8 + form->NumAdded(true);
  for (const EncoderInput& input :
       {form->Of(ids, limit), form->OfPair(ids, ids, limit)}) {
    CHECK(input.ids.size() == input.type_ids.size(), "a type for each token");
    CHECK(static_cast<int64_t>(input.ids.size()) <= limit,
          "texts that are too long are cut");
    for (const int32_t id : input.ids) {
      CHECK(id >= 0 && id < (*tokenizer)->size(), "ids are those of tokens");
    }
  }
  return 0;
}
