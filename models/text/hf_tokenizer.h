// The tokenizer.json of a Hugging Face folder as a Vocabulary: byte-level BPE,
// or BPE and Unigram of SentencePiece's kind, with merges or scores, or
// WordPiece; added tokens, pre-tokenisers and the tokens it puts before a text.
//
//   ASSIGN_OR_RETURN(Vocabulary vocabulary,
//                    ReadHfTokenizer(bytes, {.bos = "<s>", .eos = "</s>"}));
//
// Source: the serialised form of https://github.com/huggingface/tokenizers.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"
#include "models/text/tokenizer.h"

namespace millrace::models {

// What tokenizer_config.json names; empty: none. A text that is no token is
// taken as none.
struct HfTokenTexts {
  std::string bos = {};
  std::string eos = {};
  // What stands around a text is read elsewhere (PostProcessor): encoders have
  // tokens behind a text and between two.
  bool template_apart = false;
};

// INVALID_ARGUMENT for what contradicts itself, UNIMPLEMENTED for what is right
// but of no kind that we know; both name the key. The answer's ends
// hold eos only.
StatusOr<Vocabulary> ReadHfTokenizer(std::string_view tokenizer_json,
                                     const HfTokenTexts& texts);

}  // namespace millrace::models
