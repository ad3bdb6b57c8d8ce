// Copying elements that lie at any strides into a dense tensor.
#pragma once

#include <cstring>

#include "models/graph/op.h"
#include "models/graph/ops/dispatch.h"
#include "models/graph/ops/elementwise.h"

namespace millrace::models::graph {

// out[i, j, …] = from[i * strides[0] + j * strides[1] + …]; `from` and strides
// in elements, which may be 0 or negative. Divided among the team.
inline void CopyStrided(const std::byte* from, int64_t first,
                        const Shape& strides, const Result& out,
                        const Shape& shape, const Team& team) {
  const BroadcastWalk walk =
      BroadcastWalk::WithStrides(shape, std::span(&strides, 1));
  DispatchBytes(DTypeBytes(out.dtype), [&]<typename T>() {
    const T* x = reinterpret_cast<const T*>(from) + first;
    ForTeam(walk, team, [&](const BroadcastRow& row) {
      T* y = out.data<T>() + row.out;
      const T* run = x + row.at[0];
      if (row.step[0] == 1) {
        if (row.length > 0) {
          std::memcpy(y, run, static_cast<size_t>(row.length) * sizeof(T));
        }
        return;
      }
      const int64_t step = row.step[0];
      for (int64_t i = 0; i < row.length; ++i) y[i] = run[i * step];
    });
  });
}

}  // namespace millrace::models::graph
