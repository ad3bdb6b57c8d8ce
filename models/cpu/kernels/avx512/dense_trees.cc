// Decision trees, sixteen walks at a time.

#include <immintrin.h>

#include "models/cpu/kernels/dense/trees.h"

namespace millrace::models {
namespace {

struct TreeLanes16 {
  static constexpr int kLanes = 16;

  // Nodes come as pairs of threshold and word, eight to a register: half the
  // reads of two gathers.
  static __m512i Step(const TreeWalk& args, __m512i root, __m512i x_at,
                      __m512i at) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14,
                                          12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i low =
        _mm512_i32gather_epi64(_mm512_castsi512_si256(at), args.nodes, 8);
    const __m512i high =
        _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(at, 1), args.nodes, 8);
    const __m512 threshold =
        _mm512_castsi512_ps(_mm512_permutex2var_epi32(low, even, high));
    const __m512i word = _mm512_permutex2var_epi32(low, odd, high);
    const __m512i feature = _mm512_and_epi32(_mm512_srli_epi32(word, 16),
                                             _mm512_set1_epi32(0x7fff));
    const __m512 x =
        _mm512_i32gather_ps(_mm512_add_epi32(x_at, feature), args.x, 4);
    __mmask16 right = _mm512_cmp_ps_mask(x, threshold, _CMP_GT_OQ);
    if (args.nan_bits) {
      right |=
          _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) & _mm512_movepi32_mask(word);
    }
    const __m512i left = _mm512_add_epi32(
        root, _mm512_and_epi32(word, _mm512_set1_epi32(0xffff)));
    return _mm512_mask_add_epi32(left, right, left, _mm512_set1_epi32(1));
  }

  static void Walk(const TreeWalk& args, const int32_t* root,
                   const int32_t* x_at, int64_t groups, int32_t* leaf) {
    constexpr int kMost = Trees<TreeLanes16>::kGroups;
    if (groups == kMost) return WalkGroups<kMost>(args, root, x_at, leaf);
    for (int64_t g = 0; g < groups; ++g) {
      WalkGroups<1>(args, root + g * kLanes, x_at + g * kLanes,
                    leaf + g * kLanes);
    }
  }

  template <int kGroups>
  static void WalkGroups(const TreeWalk& args, const int32_t* root,
                         const int32_t* x_at, int32_t* leaf) {
    __m512i roots[kGroups];
    __m512i xs[kGroups];
    __m512i at[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      roots[g] = _mm512_loadu_si512(root + g * kLanes);
      xs[g] = _mm512_loadu_si512(x_at + g * kLanes);
      at[g] = roots[g];
    }
    for (bool moves = true; moves;) {
      __mmask16 moved = 0;
      for (int g = 0; g < kGroups; ++g) {
        const __m512i next = Step(args, roots[g], xs[g], at[g]);
        moved |= _mm512_cmpneq_epi32_mask(next, at[g]);
        at[g] = next;
      }
      moves = moved != 0;
    }
    for (int g = 0; g < kGroups; ++g) {
      _mm512_storeu_si512(leaf + g * kLanes, at[g]);
    }
  }
};

}  // namespace

void WalkTreesAvx512(const TreeWalk& walk) { Trees<TreeLanes16>::Walk(walk); }

}  // namespace millrace::models
