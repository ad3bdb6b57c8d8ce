// Arbitrary JSON as the program of an archive whose weights are as they should
// be: imported, and run with small limits where that succeeds.
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "models/files/zip_writer.h"
#include "models/graph/pt2/importer.h"
#include "tests/fuzz/graph/run_both.h"

namespace {

using namespace millrace::models;
using namespace millrace::models::graph;

constexpr std::string_view kConfig =
    R"({"config":{"w":{"path_name":"w","is_param":true,"use_pickle":false,)"
    R"("tensor_meta":{"dtype":7,"sizes":[{"as_int":4},{"as_int":4}],)"
    R"("strides":[{"as_int":4},{"as_int":1}],"storage_offset":{"as_int":0},)"
    R"("layout":7}}}})";

std::string Archive(std::string_view json) {
  std::ostringstream out;
  millrace::models::ZipWriter zip(out);
  const std::string weights(64, '\x3f');
  const std::pair<const char*, std::string_view> entries[] = {
      {"t/archive_format", "pt2"},
      {"t/archive_version", "0"},
      {"t/byteorder", "little"},
      {"t/models/model.json", json},
      {"t/data/weights/model_weights_config.json", kConfig},
      {"t/data/constants/model_constants_config.json", R"({"config":{}})"},
      {"t/data/weights/w", weights},
  };
  for (const auto& [name, text] : entries) {
    zip.Add(name, {std::as_bytes(std::span(text))});
  }
  (void)zip.Finish();
  return out.str();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string archive =
      Archive({reinterpret_cast<const char*>(data), size});
  ImportReport report;
  auto graph =
      pt2::ImportPt2Bytes(std::as_bytes(std::span(archive)), &report,
                          {.max_nodes = 2000, .max_weight_bytes = 1 << 20});
  if (graph.ok()) RunBoth(*std::move(graph));
  return 0;
}
