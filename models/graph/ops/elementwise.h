// Loops over elements, written so that the compiler sees plain arrays: the
// common ways of repeating an operand within a row get loops of their own.
#pragma once

#include "models/graph/op.h"
#include "models/graph/ops/broadcast.h"

namespace millrace::models::graph {

// Calls body(row) for this member's part of the walk: whole rows, or parts of
// rows where there are fewer rows than members.
template <typename Body>
void ForTeam(const BroadcastWalk& walk, const Team& team, Body&& body) {
  if (walk.num_rows() >= team.count) {
    const auto [begin, end] = team.Share(walk.num_rows());
    walk.ForRows(begin, end, body);
    return;
  }
  const auto [begin, end] = team.Share(walk.row_length(), 64);
  walk.ForRows(0, walk.num_rows(), [&](BroadcastRow row) {
    row.out += begin;
    for (size_t k = 0; k < row.at.size(); ++k) {
      row.at[k] += begin * row.step[k];
    }
    row.length = end - begin;
    body(row);
  });
}

// y[i] = f(x[i])
template <typename In, typename Out, typename F>
void Map(const Call& call, const Result& result, const Team& team, F&& f) {
  const In* x = call.arg(0).data<In>();
  Out* y = result.data<Out>();
  const auto [begin, end] = team.Share(call.arg(0).num_elements(), 64);
  for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
}

// y[i] = f(a[i], b[i]), broadcast.
template <typename A, typename B, typename Out, typename F>
void Map2(const Call& call, const Result& result, const Team& team, F&& f) {
  const A* all_a = call.arg(0).data<A>();
  const B* all_b = call.arg(1).data<B>();
  Out* all_y = result.data<Out>();
  const BroadcastWalk walk(result.shape,
                           {call.arg(0).shape, call.arg(1).shape});
  ForTeam(walk, team, [&](const BroadcastRow& row) {
    const A* a = all_a + row.at[0];
    const B* b = all_b + row.at[1];
    Out* y = all_y + row.out;
    const int64_t n = row.length;
    if (row.step[0] == 1 && row.step[1] == 1) {
      for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
    } else if (row.step[0] == 1) {
      const B b0 = n > 0 ? *b : B{};
      for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b0);
    } else if (row.step[1] == 1) {
      const A a0 = n > 0 ? *a : A{};
      for (int64_t i = 0; i < n; ++i) y[i] = f(a0, b[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) y[i] = f(*a, *b);
    }
  });
}

}  // namespace millrace::models::graph
