#define VECTOR_BYTES 32
#define MAX_ROWS 6
#include "models/graph/ops/gemm/tile_body.inc"

namespace millrace::models::graph {

constinit const GemmTiles kAvx2Tiles = kTiles;

}  // namespace millrace::models::graph
