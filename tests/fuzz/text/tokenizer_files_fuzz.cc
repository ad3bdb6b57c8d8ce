// Files of tokenizers from outside: tokenizer.json, tekken.json or
// tokenizer.model by the first byte, then the file. Whatever is accepted gives
// ids of its vocabulary for any text, the file's own bytes included.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "models/text/hf_tokenizer.h"
#include "models/text/sentence_model.h"
#include "models/text/tekken.h"

using millrace::StatusOr;
using millrace::models::ReadHfTokenizer;
using millrace::models::ReadSentenceModel;
using millrace::models::ReadTekken;
using millrace::models::Tokenizer;
using millrace::models::Vocabulary;

namespace {

StatusOr<Vocabulary> Read(uint8_t kind, std::string_view file) {
  if (kind % 3 == 1) return ReadTekken(file);
  if (kind % 3 == 2) return ReadSentenceModel(file);
  return ReadHfTokenizer(file, {.bos = "<s>", .eos = "</s>"});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data + 1),
                              size - 1);
  auto vocabulary = Read(data[0], file);
  if (!vocabulary.ok()) return 0;
  const auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
  if (!tokenizer.ok()) return 0;
  const std::string_view tail =
      file.substr(file.size() - std::min<size_t>(file.size(), 64));
  for (const std::string_view text :
       {std::string_view("The mill\n\n turns 42 \xe6\xb0\xb4<s>"), tail}) {
    for (const bool parse : {false, true}) {
      const auto ids =
          (*tokenizer)
              ->Encode(text, {.add_special = true, .parse_special = parse});
      for (const int32_t id : ids) {
        CHECK(id >= 0 && id < (*tokenizer)->size(), "ids are those of tokens");
      }
      (*tokenizer)->Decode(ids, true);
    }
  }
  return 0;
}
