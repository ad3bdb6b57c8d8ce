#define VECTOR_BYTES 64
#define MAX_ROWS 12
#include "models/graph/ops/gemm/tile_body.inc"

namespace millrace::models::graph {

constinit const GemmTiles kAvx512Tiles = kTiles;

}  // namespace millrace::models::graph
