// Arbitrary bytes as a GGUF: parsed, every key read by every reader, then
// judged as a language model with its vocabulary. Tensor data that a good
// header promises must really be there, so all of it is touched.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "models/files/gguf.h"
#include "models/llm/gguf_source.h"
#include "models/llm/llm_plan.h"
#include "models/llm/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::models;
  const auto bytes = std::as_bytes(std::span(data, size));
  millrace::StatusOr<GgufFile> file = GgufFile::Parse(bytes);
  if (!file.ok()) return 0;
  for (const GgufKey& key : file->keys()) {
    (void)file->Int(key.name);
    (void)file->Float(key.name);
    (void)file->Bool(key.name);
    (void)file->String(key.name);
    (void)file->Strings(key.name);
    (void)file->Ints(key.name);
  }
  uint32_t sum = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    for (const std::byte byte : tensor.data) sum += static_cast<uint32_t>(byte);
  }
  if (sum == 0xffffffffu) return 0;  // keeps the loop
  const GgufSource source(std::move(file).value());
  const millrace::StatusOr<LlmPlan> plan = PlanLlm(source);
  if (plan.ok()) {
    (void)RopeTables(plan->config, plan->tensors, plan->config.context);
  }
  (void)source.ReadVocabulary();
  return 0;
}
