// Embedding bags (models/cpu/pool_rows.h) for vectors of any width. A bag's
// sums stay in registers: a block of up to 8 vectors of columns goes over all
// rows of the bag, so that rows of up to 128 values (AVX-512) are read once.
#pragma once

#include "models/cpu/pool_rows.h"

namespace millrace::models {

// L gives V (the vectors, scalar/vec1.h says what of them) and Load<kType>: a
// vector of one type of row as f32.
template <class L>
struct RowPooling {
  using V = typename L::V;
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int kMostVectors = 8;
  // Rows are asked for so many bytes ahead, into L2, which has more reads under
  // way than L1. On one core of an AMD EPYC (Zen 4) that others used, too, rows
  // of 256, 128 and 72 bytes out of 2 GB in huge pages, in CPU time: 13.5, 6.9
  // and 4.1 GB/s without, 17, 16 and 10 so; 48 rows ahead or 192 are alike.
  static constexpr int64_t kAheadBytes = 12 << 10;
  static constexpr int64_t kMostAhead = 192;  // rows
  static constexpr int64_t kLine = 64;
  static constexpr int kIntoL2 = 2;

  static void Run(const PoolRowsArgs& args) {
    switch (args.type) {
      case TableRows::kF32:
        return OfType<TableRows::kF32>(args);
      case TableRows::kF16:
        return OfType<TableRows::kF16>(args);
      case TableRows::kBf16:
        return OfType<TableRows::kBf16>(args);
      case TableRows::kInt8:
        return OfType<TableRows::kInt8>(args);
    }
  }

 private:
  static int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

  static int64_t RowAt(const PoolRowsArgs& args, int64_t i) {
    return args.rows != nullptr ? args.rows[i] : int64_t{args.rows32[i]};
  }
  static int64_t OffsetAt(const PoolRowsArgs& args, int64_t bag) {
    if (args.offsets == nullptr && args.offsets32 == nullptr) {
      return bag * args.bag_rows;
    }
    if (bag >= args.num_offsets) return args.num_rows;
    return args.offsets != nullptr ? args.offsets[bag]
                                   : int64_t{args.offsets32[bag]};
  }
  static const std::byte* Row(const PoolRowsArgs& args, int64_t i) {
    return args.table + RowAt(args, i) * args.row_bytes;
  }
  // Inlined early: g++ takes a function that only prefetches for one without
  // effects, and drops the call.
  [[gnu::always_inline]] static void Prefetch(const PoolRowsArgs& args,
                                              int64_t i) {
    const std::byte* row = Row(args, i);
    for (int64_t at = 0; at < args.row_bytes; at += kLine) {
      __builtin_prefetch(row + at, 0, kIntoL2);
    }
    // Such rows do not all begin with a line.
    if (args.row_bytes % kLine != 0) {
      __builtin_prefetch(row + args.row_bytes - 1, 0, kIntoL2);
    }
  }

  static float Float(const std::byte* at) {
    float x;
    __builtin_memcpy(&x, at, sizeof x);
    return x;
  }

  template <TableRows kType>
  static void OfType(const PoolRowsArgs& args) {
    if (args.pool == BagPool::kMax) return Bags<kType, true>(args);
    Bags<kType, false>(args);
  }

  template <TableRows kType, bool kMax>
  static void Bags(const PoolRowsArgs& args) {
    if (args.row_bytes == 0) return;
    const int64_t first = OffsetAt(args, args.bag_begin);
    const int64_t last = OffsetAt(args, args.bag_end);
    const int64_t most = kAheadBytes / args.row_bytes + 1;
    const int64_t ahead = Min(most, kMostAhead);
    for (int64_t i = first; i < Min(first + ahead, last); ++i) {
      Prefetch(args, i);
    }
    for (int64_t bag = args.bag_begin; bag < args.bag_end; ++bag) {
      const int64_t begin = OffsetAt(args, bag);
      const int64_t end = OffsetAt(args, bag + 1);
      float* out = args.out + bag * args.size;
      // The first block of columns prefetches for all of them: rows i + ahead
      // below `stop`.
      int64_t stop = last;
      for (int64_t column = 0; column < args.size;) {
        const int64_t vectors = (args.size - column) / kLanes;
        if (vectors >= 8) {
          Block<kType, kMax, 8>(args, begin, end, {ahead, stop}, column, out);
          column += 8 * kLanes;
        } else if (vectors >= 4) {
          Block<kType, kMax, 4>(args, begin, end, {ahead, stop}, column, out);
          column += 4 * kLanes;
        } else if (vectors >= 2) {
          Block<kType, kMax, 2>(args, begin, end, {ahead, stop}, column, out);
          column += 2 * kLanes;
        } else {
          // The last one may be cut.
          Block<kType, kMax, 1>(args, begin, end, {ahead, stop}, column, out);
          column += kLanes;
        }
        stop = 0;
      }
    }
  }

  static constexpr int64_t ValueBytes(TableRows type) {
    return type == TableRows::kF32 ? 4 : type == TableRows::kInt8 ? 1 : 2;
  }

  // `count` values of a row.
  template <TableRows kType>
  static F LoadFirst(const std::byte* at, int64_t count) {
    if (count >= kLanes) return L::template Load<kType>(at);
    alignas(64) std::byte values[kLanes * ValueBytes(kType)] = {};
    for (int64_t i = 0; i < count * ValueBytes(kType); ++i) values[i] = at[i];
    return L::template Load<kType>(values);
  }

  struct Prefetching {
    int64_t ahead;  // rows
    int64_t stop;   // rows from here on are not asked for
  };

  // Columns from `column` on of one bag.
  template <TableRows kType, bool kMax, int kVectors>
  static void Block(const PoolRowsArgs& args, int64_t begin, int64_t end,
                    Prefetching prefetching, int64_t column, float* out) {
    constexpr bool kInt8 = kType == TableRows::kInt8;
    constexpr int64_t kStep = kLanes * ValueBytes(kType);
    const int64_t left = args.size - column;
    F sum[kVectors];
    for (int u = 0; u < kVectors; ++u) sum[u] = V::Zero();
    float biases = 0;
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t next = i + prefetching.ahead;
      if (next < prefetching.stop) Prefetch(args, next);
      if (RowAt(args, i) == args.padding_row) continue;
      const std::byte* row = Row(args, i);
      const std::byte* at = row + column * ValueBytes(kType);
      float factor = args.weights != nullptr ? args.weights[i] : 1.0f;
      float bias = 0;
      if constexpr (kInt8) {
        const float scale = Float(row + args.size);
        bias = Float(row + args.size + sizeof(float));
        if constexpr (!kMax) {
          biases = args.weights != nullptr ? L::Fma(factor, bias, biases)
                                           : biases + bias;
        }
        factor = args.weights != nullptr ? factor * scale : scale;
      }
      const F w = V::Set(factor);
      const F b = V::Set(bias);
      const bool weighs = kInt8 || args.weights != nullptr;
      for (int u = 0; u < kVectors; ++u) {
        F x;
        if constexpr (kVectors == 1) {
          x = LoadFirst<kType>(at, left);
        } else {
          x = L::template Load<kType>(at + u * kStep);
        }
        if constexpr (kMax) {
          if constexpr (kInt8) x = V::Fma(x, w, b);
          sum[u] = count == 0 ? x : V::Max(x, sum[u]);
        } else {
          sum[u] = weighs ? V::Fma(x, w, sum[u]) : V::Add(sum[u], x);
        }
      }
      ++count;
    }
    const F divisor = V::Set(static_cast<float>(count > 1 ? count : 1));
    for (int u = 0; u < kVectors; ++u) {
      F y = sum[u];
      if constexpr (kInt8 && !kMax) y = V::Add(y, V::Set(biases));
      if (args.pool == BagPool::kMean) y = V::Div(y, divisor);
      if constexpr (kVectors == 1) {
        V::StoreFirst(out + column, left, y);
      } else {
        V::Store(out + column + u * kLanes, y);
      }
    }
  }
};

}  // namespace millrace::models
