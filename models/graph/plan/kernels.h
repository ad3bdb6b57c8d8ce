// The tables of kernels that the steps of a plan are made of.
#pragma once

#include "models/cpu/graph_int8_kernels.h"
#include "models/cpu/graph_kernels.h"
#include "models/graph/trace.h"

namespace millrace::models::graph {

class OneDnnLayers;

// Tables live forever.
struct Kernels {
  const DenseTable& dense;
  const Int8Table& int8;
  const DenseProducts* bf16;       // null: this machine has none
  OneDnnLayers* onednn = nullptr;  // null: no layer is oneDNN's
};

// What these products multiply.
inline Factors FactorsOf(const DenseProducts& products) {
  return products.round != nullptr ? Factors::kBf16 : Factors::kF32;
}

}  // namespace millrace::models::graph
