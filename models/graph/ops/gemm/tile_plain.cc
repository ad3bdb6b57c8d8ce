#define VECTOR_BYTES 16
#define MAX_ROWS 6
#include "models/graph/ops/gemm/tile_body.inc"

namespace millrace::models::graph {

constinit const GemmTiles kPlainTiles = kTiles;

}  // namespace millrace::models::graph
