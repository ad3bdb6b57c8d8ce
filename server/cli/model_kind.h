// The kind of model at a path of the command line, found by its content,
// so that each verb can say which kinds it takes.
#pragma once

#include <string>
#include <string_view>

#include "config/base/status.h"

namespace millrace::server {

enum class FileKind {
  kLanguageModel,  // a GGUF file or a Hugging Face folder
  kEncoder,        // likewise, of an encoder of texts (BERT, …)
  kGraph           // an ONNX file or a PyTorch export
};

// NOT_FOUND when nothing is there, INVALID_ARGUMENT when it is no model; both
// name the kinds that there are.
StatusOr<FileKind> FileKindOf(const std::string& path);

// "a language model", for sentences.
std::string_view KindName(FileKind kind);

// OK when the path holds this kind. Else a sentence for people about the verb
// and what to use instead.
Status ExpectKind(const std::string& path, FileKind kind,
                  std::string_view verb);

}  // namespace millrace::server
