// TileConfig: the operand of ldtilecfg. Anonymous namespace: every file has its
// own.
#pragma once

#include <cstdint>

namespace millrace::models {
namespace {

// The shapes of the eight tiles, as ldtilecfg reads them from memory.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Shape(int tile, int num_rows, int num_bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(num_bytes);
  }
};

}  // namespace
}  // namespace millrace::models
