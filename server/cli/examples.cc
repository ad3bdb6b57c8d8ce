#include "server/cli/examples.h"

namespace millrace::server {
namespace {

struct Examples {
  std::string_view verb;
  std::string_view first;
  std::string_view second;
};
// At most 78 characters each, so that none is wider than a terminal.
constexpr Examples kExamples[] = {
    {"serve", "millrace serve chat=my-model.gguf --port 9000",
     "millrace serve resnet50.onnx --max-batch-size 8 --max-queue-delay 5ms"},
    {"chat", "millrace chat \"What is photosynthesis?\"",
     "millrace chat --url http://127.0.0.1:9000 --temperature 0"},
    {"health", "millrace health", "millrace health --port 9000 && echo ready"},
    {"pull", "millrace pull hf://org/repo",
     "millrace pull https://example.com/model.gguf --sha256 DIGEST"},
    {"keys", "millrace keys create --tenant search >> keys.yaml",
     "millrace keys create --tenant ops --scopes manage,metrics >> keys.yaml"},
    {"trace", "millrace trace", "millrace trace --seconds 2 -o busy.json"},
    {"inspect", "millrace inspect my-model.gguf",
     "millrace inspect resnet50.onnx"},
    {"topology", "millrace topology --models 2",
     "millrace topology --url http://127.0.0.1:8000"},
    {"bench", "millrace bench my-model.gguf",
     "millrace bench my-model.gguf --batch 1,16 --depth 0 --json bench.json"},
    {"convert", "millrace convert my-model.gguf my-model.packed.gguf",
     "millrace convert path/to/Qwen2.5-0.5B qwen.packed.gguf"},
    {"migrate", "millrace migrate resnet50.mar",
     "millrace migrate resnet50.mar --output repository --handler "
     "base_handler"},
    {"run", "millrace run resnet50.onnx",
     "millrace run resnet50.onnx --input images.npz --iters 20"},
    {"quantize", "millrace quantize resnet50.onnx --calibration images.npz",
     "millrace quantize bert.onnx --calibration a.npz,b.npz --max-error 0.02"},
    {"profile", "millrace profile resnet50.onnx",
     "millrace profile bert.onnx --sizes batch=8,sequence=128 --svg bert.svg"},
    {"logits", "millrace logits my-model.gguf --tokens ids.json",
     "millrace logits my-model.gguf --tokens ids.json --raw --out logits.f32"},
    {"completion", "source <(millrace completion bash)",
     "millrace completion fish > ~/.config/fish/completions/millrace.fish"},
};

}  // namespace

std::string ExamplesText(std::string_view verb) {
  for (const Examples& examples : kExamples) {
    if (examples.verb != verb) continue;
    std::string text = "\nexamples:\n  ";
    text.append(examples.first).append("\n  ");
    return text.append(examples.second).append("\n");
  }
  return "";
}

}  // namespace millrace::server
