// The int8 kernels one value at a time.

#include "models/cpu/kernels/dense_int8/define.h"
#include "models/cpu/kernels/scalar/vec1.h"

namespace millrace::models {
namespace {

struct Shape {
  using V = Vec1;
  using I = uint32_t;
  using F = float;
  static constexpr int kVectors = 4;
  static constexpr int kRows = 3;
  static constexpr int64_t kBlockBytes = 1 << 16;
  static constexpr bool kHalves = true;
  static constexpr int64_t kFewPanels = 8;
  static constexpr bool kPairs = false;
  static constexpr int64_t kRawBytes = 1;

  static I LoadInts(const int32_t* p, int64_t n) {
    return n > 0 ? static_cast<uint32_t>(*p) : 0;
  }
  static void StoreInts(int32_t* p, I v) { *p = static_cast<int32_t>(v); }
  static I ToInts(F v) {
    return static_cast<uint32_t>(static_cast<int32_t>(__builtin_rintf(v)));
  }
  static I Four(const uint8_t* p) { return Word(p); }
  static I Weights(const int8_t* p) {
    return Word(reinterpret_cast<const uint8_t*>(p));
  }
  static I Dot(I acc, I x, I w) {
    for (int i = 0; i < 32; i += 8) {
      const auto a = static_cast<int32_t>((x >> i) & 255);
      const auto b = static_cast<int8_t>((w >> i) & 255);
      acc += static_cast<uint32_t>(a * b);
    }
    return acc;
  }
  static F LoadBytes(const uint8_t* p, int64_t n) {
    return n > 0 ? static_cast<float>(*p) : 0.0f;
  }
  static void StoreBytes(uint8_t* p, int64_t n, F v, int32_t zero) {
    if (n > 0) *p = static_cast<uint8_t>(ToInts(v) + static_cast<I>(zero));
  }
  static void Lookup(const uint8_t* table, const uint8_t* x, int64_t n,
                     uint8_t* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
  }

  struct Half {
    uint8_t of[2];
  };
  static Half PackHalf(I a, I b, int32_t zero) {
    const auto add = static_cast<I>(zero);
    return {{static_cast<uint8_t>(a + add), static_cast<uint8_t>(b + add)}};
  }
  static void StoreHalf(uint8_t* p, int64_t n, Half v) {
    for (int64_t i = 0; i < 2 && i < n; ++i) p[i] = v.of[i];
  }
  struct Rows {
    Half of[2];
  };
  static Rows PackRows(const I (&q)[2][2], int32_t zero) {
    return {
        {PackHalf(q[0][0], q[0][1], zero), PackHalf(q[1][0], q[1][1], zero)}};
  }
  static void StoreRow0(uint8_t* p, int64_t n, const Rows& v) {
    StoreHalf(p, n, v.of[0]);
  }
  static void StoreRow1(uint8_t* p, int64_t n, const Rows& v) {
    StoreHalf(p, n, v.of[1]);
  }
  template <int kN>
  static void LookupRows(const uint8_t* table, Rows (&v)[kN]) {
    for (Rows& rows : v) {
      for (Half& half : rows.of) {
        for (uint8_t& byte : half.of) byte = table[byte];
      }
    }
  }

  // Four values.
  struct Taps {
    uint8_t of[4];
  };
  static constexpr int kTapRows = 4;
  static Taps NoTaps() { return {}; }
  static Taps LoadTaps(const uint8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static void StoreTaps(uint8_t* p, int64_t n, Taps v) {
    for (int64_t i = 0; i < 4 && i < n; ++i) p[i] = v.of[i];
  }
  static void Interleave(const Taps (&taps)[4], I (&x)[4]) {
    for (int i = 0; i < 4; ++i) {
      const uint8_t lane[] = {taps[0].of[i], taps[1].of[i], taps[2].of[i],
                              taps[3].of[i]};
      x[i] = Word(lane);
    }
  }
  static void PutTaps(const int8_t (&w)[4], int8_t* p) {
    for (int i = 0; i < 4; ++i) p[i] = w[i];
  }
  static I DotTaps(I acc, I x, I w) { return Dot(acc, x, w); }
  static Taps PackBytes(const I (&q)[4], int32_t zero) {
    Taps v;
    for (int i = 0; i < 4; ++i) {
      v.of[i] = static_cast<uint8_t>(q[i] + static_cast<I>(zero));
    }
    return v;
  }
  static Taps LookupTaps(const uint8_t* table, Taps v) {
    for (uint8_t& byte : v.of) byte = table[byte];
    return v;
  }

  static uint8_t ZeroRaw() { return 0; }
  static uint8_t LoadRaw(const uint8_t* p, int64_t) { return *p; }
  static void StoreRaw(uint8_t* p, int64_t, uint8_t v) { *p = v; }
  static uint8_t Greater(uint8_t a, uint8_t b) { return a > b ? a : b; }

 private:
  static I Word(const uint8_t* p) {
    return I{p[0]} | I{p[1]} << 8 | I{p[2]} << 16 | I{p[3]} << 24;
  }
};

}  // namespace

MILLRACE_DEFINE_INT8(ScalarBytes, Shape)

}  // namespace millrace::models
