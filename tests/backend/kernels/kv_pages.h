// One KV head's pages as attention reads them, and a call over them: what the
// tests of `attend` and of `prompt_attend` share.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "tests/backend/kernels/tables.h"

namespace millrace::models {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline int64_t KeyBytes(KvFormat format, int64_t dims) {
  return format == KvFormat::kF16   ? 2 * dims
         : format == KvFormat::kF32 ? 4 * dims
                                    : dims + 4;
}

// What int8 makes of a head: the scale and round(x / scale), worked out in
// double. The kernels divide and multiply in f32, so that a quotient within
// their error of a half may go either way; `near_half` tells of one.
struct Head8 {
  Head8(const float* x, int32_t dims) : q(dims) {
    float greatest = 0;
    for (int32_t d = 0; d < dims; ++d) {
      greatest = std::max(greatest, std::abs(x[d]));
    }
    scale = greatest / 127.0f;  // one rounding, as documented
    for (int32_t d = 0; d < dims && scale > 0; ++d) {
      const double quotient = double{x[d]} / double{scale};
      q[d] = static_cast<int32_t>(std::nearbyint(quotient));
      const double from_half =
          std::abs(std::abs(quotient - std::floor(quotient)) - 0.5);
      near_half = near_half || from_half < 127 * 4 * kUnit;
    }
  }
  float scale = 0;
  bool near_half = false;
  std::vector<int32_t> q;
};

// A split's worth of pages, written by the table's own write_kv.
struct Pages {
  Pages(const KernelTable& t, KvFormat kv_format, int32_t dims, int32_t keys,
        std::mt19937& rng)
      : format(kv_format), head_dim(dims), k(keys * dims), v(keys * dims) {
    FillNormal(rng, k);
    FillNormal(rng, v);
    // Exactly as many pages as there are keys for, full of NaN at first.
    for (int32_t first = 0; first < keys; first += kPageKeys) {
      for (auto* pages : {&k_pages, &v_pages}) {
        pages->push_back(std::make_unique<Buffer<uint8_t>>(
            kPageKeys * KeyBytes(format, dims), 0xff));
      }
    }
    for (int32_t key = 0; key < keys; ++key) {
      t.write_kv(k.data() + key * dims, v.data() + key * dims, dims,
                 key % kPageKeys, format, k_pages[key / kPageKeys]->data(),
                 v_pages[key / kPageKeys]->data());
    }
    for (auto& page : k_pages) k_table.push_back(page->data());
    for (auto& page : v_pages) v_table.push_back(page->data());
  }
  // What a page holds of x[key][…].
  std::vector<double> Stored(const Floats& x, int32_t key) const {
    const float* from = x.data() + key * head_dim;
    std::vector<double> out(from, from + head_dim);
    if (format == KvFormat::kF16) {
      for (double& value : out) value = static_cast<Float16>(value);
    } else if (format == KvFormat::kInt8) {
      const Head8 head(from, head_dim);
      for (int32_t d = 0; d < head_dim; ++d) {
        out[d] = double{head.scale} * head.q[d];
      }
    }
    return out;
  }

  KvFormat format;
  int32_t head_dim;
  Floats k, v;  // [key][dim], before rounding to the format
  std::vector<std::unique_ptr<Buffer<uint8_t>>> k_pages, v_pages;
  std::vector<const void*> k_table, v_table;
};

struct Partial {
  Partial(int32_t rows, int32_t dims)
      : m(rows), l(rows), o(rows * (dims + 5)) {}
  Floats m, l, o;
};

// How the rows of a call see keys and scores; empty `hidden`: all keys.
struct View {
  std::vector<int32_t> hidden = {};
  float softcap = 0;
  int32_t Hidden(int32_t row) const { return hidden.empty() ? 0 : hidden[row]; }
};

inline Partial& RunAttend(const KernelTable& t, const Pages& pages,
                          const Floats& q, const std::vector<int32_t>& visible,
                          Partial& out, const View& view = {},
                          bool prompt = false) {
  const auto rows = static_cast<int32_t>(visible.size());
  int32_t most = 0;
  for (int32_t keys : visible) most = std::max(most, keys);
  const auto scratch_floats =
      prompt ? t.prompt_attend_scratch_floats : t.attend_scratch_floats;
  Floats scratch(scratch_floats(rows, pages.head_dim), kNan);
  for (int64_t i = 0; i < out.o.size(); ++i) out.o[i] = kNan;
  AttendArgs args{};
  args.q = q.data();
  args.q_stride = pages.head_dim + 3;
  args.num_rows = rows;
  args.head_dim = pages.head_dim;
  args.visible = visible.data();
  args.hidden = view.hidden.empty() ? nullptr : view.hidden.data();
  args.softcap = view.softcap;
  args.num_keys = most;
  args.k_pages = pages.k_table.data();
  args.v_pages = pages.v_table.data();
  const std::vector<const void*> next(pages.k_table.size());
  args.next_k_pages = next.data();
  args.kv_format = pages.format;
  args.m = out.m.data();
  args.l = out.l.data();
  args.o = out.o.data();
  args.o_stride = pages.head_dim + 5;
  args.scratch = scratch.data();
  (prompt ? t.prompt_attend : t.attend)(args);
  return out;
}

}  // namespace millrace::models
