// Decision trees, eight walks at a time.

#include <immintrin.h>

#include "models/cpu/kernels/dense/trees.h"

namespace millrace::models {
namespace {

struct TreeLanes8 {
  static constexpr int kLanes = 8;

  // The lanes' next nodes.
  static __m256i Step(const TreeWalk& args, __m256i root, __m256i x_at,
                      __m256i at) {
    const auto* base = reinterpret_cast<const int*>(args.nodes);
    const __m256 threshold = _mm256_i32gather_ps(
        reinterpret_cast<const float*>(base), at, sizeof(TreeNode));
    const __m256i word = _mm256_i32gather_epi32(base + 1, at, sizeof(TreeNode));
    const __m256i feature = _mm256_and_si256(_mm256_srli_epi32(word, 16),
                                             _mm256_set1_epi32(0x7fff));
    const __m256 x = _mm256_i32gather_ps(
        args.x, _mm256_add_epi32(x_at, feature), sizeof(float));
    __m256i right =
        _mm256_castps_si256(_mm256_cmp_ps(x, threshold, _CMP_GT_OQ));
    if (args.nan_bits) {
      const __m256i nan =
          _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      right = _mm256_or_si256(
          right, _mm256_and_si256(nan, _mm256_srai_epi32(word, 31)));
    }
    const __m256i left = _mm256_add_epi32(
        root, _mm256_and_si256(word, _mm256_set1_epi32(0xffff)));
    return _mm256_sub_epi32(left, right);  // right is -1 or 0
  }

  static void Walk(const TreeWalk& args, const int32_t* root,
                   const int32_t* x_at, int64_t groups, int32_t* leaf) {
    constexpr int kMost = Trees<TreeLanes8>::kGroups;
    __m256i roots[kMost];
    __m256i xs[kMost];
    __m256i at[kMost];
    for (int64_t g = 0; g < groups; ++g) {
      roots[g] = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(root + g * kLanes));
      xs[g] = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(x_at + g * kLanes));
      at[g] = roots[g];
    }
    for (bool moves = true; moves;) {
      __m256i moved = _mm256_setzero_si256();
      for (int64_t g = 0; g < groups; ++g) {
        const __m256i next = Step(args, roots[g], xs[g], at[g]);
        moved = _mm256_or_si256(moved, _mm256_xor_si256(next, at[g]));
        at[g] = next;
      }
      moves = _mm256_testz_si256(moved, moved) == 0;
    }
    for (int64_t g = 0; g < groups; ++g) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(leaf + g * kLanes), at[g]);
    }
  }
};

}  // namespace

void WalkTreesAvx2(const TreeWalk& walk) { Trees<TreeLanes8>::Walk(walk); }

}  // namespace millrace::models
