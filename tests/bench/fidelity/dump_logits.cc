// dump_logits MODEL SEQUENCES.json OUT [COMPUTE [KV [THREADS]]]
//
// Teacher-forced logits of many token sequences as raw f32 rows, one after the
// other: for each {"ids": […], "first": n} the rows of positions n, n + 1, ….
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "models/llm/teacher_forcing.h"

int main(int argc, char** argv) {
  using namespace millrace;
  using namespace millrace::models;
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: %s MODEL SEQUENCES.json OUT [auto|f32 [f16|int8|f32 "
                 "[THREADS]]]\n",
                 argv[0]);
    return 2;
  }
  LlmOptions options;
  if (argc > 4) options.settings.compute_dtype = argv[4];
  if (argc > 5) options.settings.kv_cache_dtype = argv[5];
  options.settings.max_num_seqs = 1;
  const int threads = argc > 6 ? std::atoi(argv[6]) : 2;
  for (int i = 0; i < threads; ++i) options.cpus.push_back(i);
  StatusOr<LlmModel> model = LoadLlm(argv[1], options);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }
  std::ifstream in(argv[2]);
  const nlohmann::json sequences = nlohmann::json::parse(in, nullptr, false);
  std::ofstream out(argv[3], std::ios::binary);
  if (!sequences.is_array() || !out) {
    std::fprintf(stderr, "no sequences, or the output cannot be written\n");
    return 1;
  }
  for (const auto& sequence : sequences) {
    const auto ids = sequence.at("ids").get<std::vector<int32_t>>();
    const Status status = ScoreTokens(
        *model, ids, 0,
        [&](int32_t, std::span<const float> logits) {
          out.write(reinterpret_cast<const char*>(logits.data()),
                    static_cast<std::streamsize>(logits.size_bytes()));
        },
        sequence.at("first").get<int32_t>());
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return out.good() ? 0 : 1;
}
