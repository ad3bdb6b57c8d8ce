// encode_lines TOKENIZER < LINES.json
//
// What our tokenizer makes of texts: TOKENIZER is a GGUF, a tekken.json, a
// tokenizer.model or a tokenizer.json; LINES.json is a list of texts. Prints a
// line of JSON for each: {"ids": […], "text": "decoded again"}. Special tokens
// in the texts become their ids, the model's own BOS is left out.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "config/base/utf8.h"
#include "models/files/gguf.h"
#include "models/llm/vocabulary.h"
#include "models/text/hf_tokenizer.h"
#include "models/text/sentence_model.h"
#include "models/text/tekken.h"
#include "models/text/tokenizer.h"

namespace {

using namespace millrace;
using namespace millrace::models;

StatusOr<Vocabulary> Read(const std::string& path) {
  if (path.ends_with(".gguf")) {
    ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
    return ReadVocabulary(file);
  }
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (path.ends_with("tekken.json")) return ReadTekken(bytes);
  if (path.ends_with(".model")) return ReadSentenceModel(bytes);
  return ReadHfTokenizer(bytes, {.template_apart = true});
}

int Fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s TOKENIZER < LINES.json\n", argv[0]);
    return 2;
  }
  StatusOr<Vocabulary> vocabulary = Read(argv[1]);
  if (!vocabulary.ok()) return Fail(vocabulary.status());
  const auto tokenizer = Tokenizer::Create(*std::move(vocabulary));
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  const auto lines = nlohmann::json::parse(std::cin);
  for (const auto& line : lines) {
    const auto ids = (*tokenizer)
                         ->Encode(line.get_ref<const std::string&>(),
                                  {.parse_special = true});
    const std::string text = (*tokenizer)->Decode(ids, true);
    const nlohmann::json out = {{"ids", ids},
                                {"text", ReplaceInvalidUtf8(text)}};
    std::cout << out.dump() << "\n";
  }
  return 0;
}
