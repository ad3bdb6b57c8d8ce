// Epilogue of a block of finished sums of bf16 products, up to 32 rows by
// 32 outputs. It is done some rows at a time, so that it can stand between the
// tile products of the next block: they run beside each other. A block's
// results are rounded here where they are kept in bf16. Anonymous namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "models/cpu/kernels/amx/ask_to_write.h"
#include "models/cpu/kernels/avx512bf16/bf16_factors.h"
#include "models/cpu/kernels/dense/math.h"

namespace millrace::models {
namespace {

// Where the results of a call go.
struct Results {
  float* y = nullptr;
  Bf16* y_bf16 = nullptr;  // instead of y
  int64_t ld_y = 0;
  int64_t n = 0;
  const Epilogue* epilogue = nullptr;
  // Their lines are asked for, since stores that miss wait for each other.
  bool far = false;
};

// Whether results of so many rows are more than stay in L2, and come so fast
// that a call waits for their lines.
inline bool AreFar(const Bf16* y_bf16, int64_t ld_y, int64_t rows, int64_t k) {
  constexpr int64_t kBytesInL2 = 1 << 20;
  constexpr int64_t kMostK = 512;
  return k <= kMostK && rows * ld_y * (y_bf16 != nullptr ? 2 : 4) > kBytesInL2;
}

class Ending {
 public:
  static constexpr int kRows = 32;
  static constexpr int64_t kPanel = 32;

  Ending() = default;
  // sums [rows][kPanel] of outputs from n0 on. Row i is row first + i of y or,
  // where there is a list, row_of[i], which may be none: -1.
  Ending(const Results& results, const float* sums, int rows, int64_t first,
         const int32_t* row_of, int64_t n0)
      : results_(&results),
        sums_(sums),
        row_of_(row_of),
        first_(first),
        n0_(n0),
        rows_(rows) {}

  // Finishes the rows up to `to` that are not finished yet.
  void Until(int to) {
    if (to > rows_) to = rows_;
    if (done_ >= to) return;
    if (IsQuick()) {
      QuickRows(to);
    } else {
      const Epilogue& e = *results_->epilogue;
      Math<Vec16>::With(e.f, e.a, e.b, [&](auto f) {
        if (IsWhole()) {
          Rows<true>(e, to, f);
        } else {
          Rows<false>(e, to, f);
        }
      });
    }
    done_ = to;
  }

  // Asks for what the rows [from, to) will be added to, and for the lines of
  // far results.
  void AskFor(int from, int to) const {
    const Epilogue& e = *results_->epilogue;
    const Results& r = *results_;
    if (to > rows_) to = rows_;
    for (; from < to; ++from) {
      const int64_t row = RowOf(from);
      if (row < 0) continue;
      const int64_t at = row * e.ld_residual + n0_;
      if (e.residual != nullptr) {
        __builtin_prefetch(e.residual + at);
        __builtin_prefetch(e.residual + at + kPanel / 2);
      } else if (e.residual_bf16 != nullptr) {
        __builtin_prefetch(e.residual_bf16 + at);
      }
      if (!r.far) continue;
      const int64_t to_write = row * r.ld_y + n0_;
      if (r.y_bf16 != nullptr) {
        AskToWrite(r.y_bf16 + to_write);
      } else {
        AskToWrite(r.y + to_write);
        AskToWrite(r.y + to_write + kPanel / 2);
      }
    }
  }
  bool asks() const {
    const Epilogue& e = *results_->epilogue;
    return results_->far || e.residual != nullptr || e.residual_bf16 != nullptr;
  }

 private:
  using V = KeptVec16;
  using F = V::F;

  int64_t RowOf(int i) const {
    return row_of_ == nullptr ? first_ + i : row_of_[i];
  }

  // Two vectors of a row, of which the last outputs may be missing.
  template <bool kWhole>
  struct Pair {
    int64_t live;

    template <class T>
    F First(const T* p) const {
      if constexpr (kWhole) return V::Load(p);
      return V::LoadFirst(p, live);
    }
    template <class T>
    F Second(const T* p) const {
      if constexpr (kWhole) return V::Load(p + 16);
      return V::LoadFirst(p + 16, live - 16);
    }
    void Write(F first, F second, float* y) const {
      if constexpr (kWhole) {
        V::Store(y, first);
        V::Store(y + 16, second);
      } else {
        V::StoreFirst(y, live, first);
        V::StoreFirst(y + 16, live - 16, second);
      }
    }
    void Write(F first, F second, Bf16* y) const {
      const auto both =
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
      if constexpr (kWhole) {
        _mm512_storeu_si512(y, both);
      } else {
        _mm512_mask_storeu_epi16(y, (uint32_t{1} << live) - 1, both);
      }
    }
  };

  bool IsWhole() const { return results_->n - n0_ >= kPanel; }

  // ---- the commonest epilogues: few instructions a row ----
  bool IsQuick() const {
    const Epilogue& e = *results_->epilogue;
    const bool adds = e.residual != nullptr || e.residual_bf16 != nullptr;
    return IsWhole() && e.gate == nullptr &&
           (e.f == Unary::kNone ||
            (e.f == Unary::kRelu && (!adds || e.residual_first)));
  }
  void QuickRows(int to) const {
    if (results_->epilogue->f == Unary::kRelu) {
      QuickRows(to, [](F x) { return V::Max(V::Zero(), x); });
    } else {
      QuickRows(to, [](F x) { return x; });
    }
  }
  template <class Function>
  void QuickRows(int to, Function f) const {
    if (results_->y_bf16 != nullptr) {
      QuickRows(to, f, results_->y_bf16);
    } else {
      QuickRows(to, f, results_->y);
    }
  }
  template <class Function, class Y>
  void QuickRows(int to, Function f, Y* y) const {
    const Epilogue& e = *results_->epilogue;
    if (e.residual != nullptr) {
      QuickRows<true>(to, f, y, e.residual);
    } else if (e.residual_bf16 != nullptr) {
      QuickRows<true>(to, f, y, e.residual_bf16);
    } else {
      QuickRows<false>(to, f, y, e.residual);
    }
  }
  template <bool kAdds, class Function, class Y, class From>
  void QuickRows(int to, Function f, Y* y, const From* residual) const {
    const Epilogue& e = *results_->epilogue;
    const Pair<true> pair{kPanel};
    // A bias of -0 changes nothing.
    const bool has_bias = e.bias != nullptr;
    const F bias0 = has_bias ? V::Load(e.bias + n0_) : V::Set(-0.0f);
    const F bias1 = has_bias ? V::Load(e.bias + n0_ + 16) : V::Set(-0.0f);
    const int64_t ld_y = results_->ld_y;
    const int64_t ld_residual = e.ld_residual;
    const int32_t* const row_of = row_of_;
    const int64_t first = first_;
    y += n0_;
    if constexpr (kAdds) residual += n0_;
    const float* sums = sums_ + done_ * kPanel;
    for (int i = done_; i < to; ++i, sums += kPanel) {
      const int64_t row = row_of == nullptr ? first + i : row_of[i];
      if (row < 0) continue;
      F a = V::Add(V::Load(sums), bias0);
      F b = V::Add(V::Load(sums + 16), bias1);
      if constexpr (kAdds) {
        a = V::Add(a, V::Load(residual + row * ld_residual));
        b = V::Add(b, V::Load(residual + row * ld_residual + 16));
      }
      pair.Write(f(a), f(b), y + row * ld_y);
    }
  }

  template <bool kWhole, class Function>
  void Rows(const Epilogue& e, int to, Function f) const {
    const Results& r = *results_;
    const Pair<kWhole> pair{r.n - n0_};
    for (int i = done_; i < to; ++i) {
      const int64_t row = RowOf(i);
      if (row < 0) continue;
      const float* sums = sums_ + i * kPanel;
      F a = V::Load(sums);
      F b = V::Load(sums + 16);
      if (e.bias != nullptr) {
        a = V::Add(a, pair.First(e.bias + n0_));
        b = V::Add(b, pair.Second(e.bias + n0_));
      }
      if (e.residual_first) AddResidual(e, pair, row, a, b);
      a = f(a);
      b = f(b);
      if (e.gate != nullptr) {
        const float* gate = e.gate + row * e.ld_gate + n0_;
        a = V::Mul(a, pair.First(gate));
        b = V::Mul(b, pair.Second(gate));
      }
      if (!e.residual_first) AddResidual(e, pair, row, a, b);
      const int64_t at = row * r.ld_y + n0_;
      if (r.y_bf16 != nullptr) {
        pair.Write(a, b, r.y_bf16 + at);
      } else {
        pair.Write(a, b, r.y + at);
      }
    }
  }

  template <bool kWhole>
  void AddResidual(const Epilogue& e, const Pair<kWhole>& pair, int64_t row,
                   F& a, F& b) const {
    const int64_t at = row * e.ld_residual + n0_;
    if (e.residual != nullptr) {
      a = V::Add(a, pair.First(e.residual + at));
      b = V::Add(b, pair.Second(e.residual + at));
    } else if (e.residual_bf16 != nullptr) {
      a = V::Add(a, pair.First(e.residual_bf16 + at));
      b = V::Add(b, pair.Second(e.residual_bf16 + at));
    }
  }

  const Results* results_ = nullptr;
  const float* sums_ = nullptr;
  const int32_t* row_of_ = nullptr;
  int64_t first_ = 0;
  int64_t n0_ = 0;
  int rows_ = 0;
  int done_ = 0;
};

}  // namespace
}  // namespace millrace::models
