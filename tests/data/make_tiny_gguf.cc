// millrace_make_tiny_gguf PATH [TYPE [CONTEXT]]: writes the tiny model to a
// file, for tests that drive the real server. TYPE is a GGUF type by name.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/data/tiny_gguf.h"

int main(int argc, char** argv) {
  using millrace::models::FindGgmlType;
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s PATH [TYPE [CONTEXT]]\n", argv[0]);
    return 2;
  }
  millrace::models::TinyModel model;
  if (argc > 2) {
    bool found = false;
    for (uint32_t number = 0; number < 64; ++number) {
      const auto* info = FindGgmlType(number);
      if (info == nullptr || !info->served || info->name != argv[2]) continue;
      if (info->block_values == 256) {
        model = millrace::models::MakeWideTiny(info->type);
      }
      model.type = info->type;
      found = true;
    }
    if (!found) {
      std::fprintf(stderr, "no weights of type '%s' can be made\n", argv[2]);
      return 2;
    }
  }
  if (argc > 3) model.context = std::atoi(argv[3]);
  if (!millrace::models::WriteTinyGguf(model, argv[1])) {
    std::fprintf(stderr, "'%s' cannot be written\n", argv[1]);
    return 1;
  }
  return 0;
}
