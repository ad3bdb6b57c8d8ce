#include "server/cli/verb_table.h"

namespace millrace::server {
namespace {

constexpr Verb kVerbs[] = {
    {"serve", "serve models over REST and gRPC", RunServe, nullptr},
    {"chat", "chat with a running server in the terminal", RunChat, ChatVerb},
    {"health", "exit 0 if a running server is ready, else 1", RunHealth,
     HealthVerb},
    {"trace", "what a running server does for seconds, for Perfetto", RunTrace,
     TraceVerb},
    {"pull", "bring a model from hf://, https:// or s3:// into the cache",
     RunPull, PullVerb},
    {"keys", "make API keys for --api-keys-file", RunKeys, KeysVerb},
    {"inspect", "what a model file holds, servable or why not", RunInspect,
     InspectVerb},
    {"topology", "which cores would be pinned to what", RunTopology,
     TopologyVerb},
    {"bench", "tokens per second beside the machine's limits", RunBench,
     BenchVerb},
    {"convert", "write a model in the form that loads fastest", RunConvert,
     ConvertVerb},
    {"migrate", "write a TorchServe archive as a folder of a repository",
     RunMigrate, MigrateVerb},
    {"run", "run an ONNX or PyTorch graph on arrays of a file", RunGraph,
     GraphVerb},
    {"quantize", "choose the ranges of a graph's layers, for int8", RunQuantize,
     QuantizeVerb},
    {"profile", "where a graph's time goes, step by step", RunProfile,
     ProfileVerb},
    {"logits", "teacher-forced logits of a model", RunLogits, LogitsVerb},
    {"completion", "completions of a shell: bash, zsh or fish", RunCompletion,
     CompletionVerb},
};

}  // namespace

std::span<const Verb> Verbs() { return kVerbs; }

}  // namespace millrace::server
