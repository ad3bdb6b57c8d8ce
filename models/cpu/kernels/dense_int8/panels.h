// Weights w[n][k] as the products of kernels/dense_int8/gemm.h read them: in
// panels of outputs that a tile keeps in registers.
//
//   four steps a group    [panel][k / 4][output][4]
//
// Where the machine has no product of four bytes (S::kPairs), pairs go into
// sixteen bits, which saturate. Then weights come in one of two forms:
//
//   sums     A lane adds the pairs of two groups before it widens them: four
//            products, the activations up to 255. They fit if what is positive
//            among the four weights adds up to 128 at most and what is negative
//            to -128: 255 * 128 = 32640. What of a weight is beyond that stands
//            in a list behind the panels, as further groups for the same
//            activations, of which each pair keeps the same limits by itself.
//              first            [panels + 1] int32: entries of each panel
//              at               [entries] int32: their groups
//              further          [entries][output][4]
//   words    [panel][k / 2][output][2], multiplied as words, which cannot
//            overflow: 2 * 255 * 128 needs 17 bits of 32.
//
// Trained weights are small but for a few, and take the first form; those that
// are spread evenly over the bytes, as random ones, the second. S is what
// kernels/dense_int8/gemm.h says. Anonymous namespace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::models {
namespace {

// The order of k. By rows: each row of the kernel has its run of weights,
// filled up by zeros. Otherwise all of k is one run.
struct Int8Order {
  bool by_rows = false;
  int64_t rows = 1;
  int64_t run = 0;
  int64_t filled = 0;

  int64_t k() const { return rows * filled; }
};

template <class S>
class Int8Panels {
 public:
  static constexpr int kPanel = S::kVectors * S::V::kLanes;
  static constexpr int kGroup = kPanel * 4;  // bytes of four steps

  static int64_t Groups(int64_t k) { return (k + 3) / 4; }
  static int64_t Panels(int64_t n) { return (n + kPanel - 1) / kPanel; }

  // Packed weights, read.
  struct View {
    const int8_t* panels;
    bool words = false;
    const int32_t* first = nullptr;
    const int32_t* at = nullptr;
    const int8_t* further = nullptr;
  };

  // w is [n][rows][run].
  static int64_t PackedBytes(const int8_t* w, int64_t n,
                             const Int8Order& order) {
    const int64_t panels = Panels(n) * Groups(order.k()) * kGroup;
    if constexpr (S::kPairs) {
      const Source from{w, n, order.k(), order};
      const int64_t entries = CountEntries(from);
      return entries < 0 ? kHead + panels : Layout(from, entries).end;
    } else {
      return panels;
    }
  }

  static void Pack(const int8_t* w, int64_t n, const Int8Order& order,
                   int8_t* packed) {
    const Source from{w, n, order.k(), order};
    if constexpr (S::kPairs) {
      const int64_t entries = CountEntries(from);
      *reinterpret_cast<int64_t*>(packed) = entries;
      if (entries >= 0) {
        PackSums(from, Layout(from, entries), packed);
      } else {
        PackGroups<2>(from, packed + kHead);
      }
    } else {
      PackGroups<4>(from, packed);
    }
  }

  static View Read(const int8_t* packed, int64_t n, int64_t k) {
    if constexpr (S::kPairs) {
      const int64_t entries = *reinterpret_cast<const int64_t*>(packed);
      if (entries < 0) return {packed + kHead, true};
      const Layout layout({nullptr, n, k, {}}, entries);
      return {packed + kHead, false,
              reinterpret_cast<const int32_t*>(packed + layout.first),
              reinterpret_cast<const int32_t*>(packed + layout.at),
              packed + layout.further};
    } else {
      return {packed};
    }
  }

 private:
  // Holds the number of entries; -1: words.
  static constexpr int64_t kHead = 64;
  static constexpr int32_t kMost = 128;  // see above

  struct Source {
    const int8_t* w;
    int64_t n;
    int64_t k;
    Int8Order order;

    int32_t At(int64_t j, int64_t i) const {
      if (j >= n || i >= k) return 0;
      if (order.run == order.filled) return w[j * k + i];
      const int64_t row = i / order.filled;
      const int64_t at = i - row * order.filled;
      return at < order.run ? w[(j * order.rows + row) * order.run + at] : 0;
    }
  };

  // Where the parts of sums stand.
  struct Layout {
    Layout(const Source& from, int64_t entries)
        : first(kHead + Panels(from.n) * Groups(from.k) * kGroup),
          at(Line(first + (Panels(from.n) + 1) * 4)),
          further(Line(at + entries * 4)),
          end(further + entries * kGroup) {}
    static int64_t Line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

    int64_t first;
    int64_t at;
    int64_t further;
    int64_t end;
  };

  template <int kSteps>
  static void PackGroups(const Source& from, int8_t* out) {
    const int64_t groups = Groups(from.k) * 4 / kSteps;
    for (int64_t panel = 0; panel < Panels(from.n); ++panel) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t j = 0; j < kPanel; ++j) {
          for (int64_t i = 0; i < kSteps; ++i) {
            *out++ = static_cast<int8_t>(
                from.At(panel * kPanel + j, g * kSteps + i));
          }
        }
      }
    }
  }

  // What may still be added to a lane.
  struct Room {
    int32_t up = kMost;
    int32_t down = -kMost;

    // As much of v as fits, which v loses.
    int8_t Take(int32_t& v) {
      const int32_t taken = v > up ? up : v < down ? down : v;
      (v > 0 ? up : down) -= taken;
      v -= taken;
      return static_cast<int8_t>(taken);
    }
  };

  // Two groups, of which packing takes what fits and leaves the rest.
  struct TwoGroups {
    int32_t of[2][kGroup];

    TwoGroups(const Source& from, int64_t panel, int64_t group) {
      for (int64_t g = 0; g < 2; ++g) {
        for (int64_t i = 0; i < kGroup; ++i) {
          of[g][i] = from.At(panel * kPanel + i / 4, (group + g) * 4 + i % 4);
        }
      }
    }
    // Both groups' sums together.
    void TakeSums(int8_t (&taken)[2][kGroup]) {
      for (int pair = 0; pair < kGroup; pair += 2) {
        Room room;
        for (int g = 0; g < 2; ++g) {
          taken[g][pair] = room.Take(of[g][pair]);
          taken[g][pair + 1] = room.Take(of[g][pair + 1]);
        }
      }
    }
    // The pairs of one group, each by itself.
    void TakePairs(int g, int8_t (&taken)[kGroup]) {
      for (int pair = 0; pair < kGroup; pair += 2) {
        Room room;
        taken[pair] = room.Take(of[g][pair]);
        taken[pair + 1] = room.Take(of[g][pair + 1]);
      }
    }
    bool IsEmpty(int g) const {
      int32_t any = 0;
      for (const int32_t v : of[g]) any |= v;
      return any == 0;
    }
  };

  // Entries of the list; -1 where words are faster.
  static int64_t CountEntries(const Source& from) {
    const int64_t most = static_cast<int64_t>(
        static_cast<double>(Panels(from.n)) *
        static_cast<double>(Groups(from.k)) * S::kMostFurther);
    int64_t entries = 0;
    int8_t taken[2][kGroup];
    for (int64_t panel = 0; panel < Panels(from.n); ++panel) {
      for (int64_t group = 0; group < Groups(from.k); group += 2) {
        TwoGroups two(from, panel, group);
        two.TakeSums(taken);
        for (int g = 0; g < 2; ++g) {
          for (; !two.IsEmpty(g); ++entries) two.TakePairs(g, taken[g]);
        }
        if (entries > most) return -1;
      }
    }
    return entries;
  }

  static void PackSums(const Source& from, const Layout& layout,
                       int8_t* packed) {
    auto* first = reinterpret_cast<int32_t*>(packed + layout.first);
    auto* at = reinterpret_cast<int32_t*>(packed + layout.at);
    const int64_t groups = Groups(from.k);
    int64_t entry = 0;
    int8_t taken[2][kGroup];
    for (int64_t panel = 0; panel < Panels(from.n); ++panel) {
      first[panel] = static_cast<int32_t>(entry);
      for (int64_t group = 0; group < groups; group += 2) {
        TwoGroups two(from, panel, group);
        two.TakeSums(taken);
        for (int g = 0; g < 2 && group + g < groups; ++g) {
          Copy(taken[g],
               packed + kHead + (panel * groups + group + g) * kGroup);
          while (!two.IsEmpty(g)) {
            two.TakePairs(g, taken[g]);
            Copy(taken[g], packed + layout.further + entry * kGroup);
            at[entry++] = static_cast<int32_t>(group + g);
          }
        }
      }
    }
    first[Panels(from.n)] = static_cast<int32_t>(entry);
  }

  static void Copy(const int8_t (&from)[kGroup], int8_t* to) {
    __builtin_memcpy(to, from, kGroup);
  }
};

}  // namespace
}  // namespace millrace::models
