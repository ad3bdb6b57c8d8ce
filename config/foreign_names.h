// Flags of other servers (vLLM, llama.cpp, SGLang, TGI, Triton, TorchServe)
// that people try and that no setting of ours stands for: what to do instead.
#pragma once

#include <string_view>

namespace millrace::config {

// One sentence for a name in snake_case; empty for a name not known here.
std::string_view ForeignNameAnswer(std::string_view name);

}  // namespace millrace::config
