// Fourier transforms. Complex numbers are pairs along one axis more, at the
// end.
#include <algorithm>
#include <utility>
#include <vector>

#include "models/graph/pt2/aten.h"

namespace millrace::models::graph::pt2 {
namespace {

// What a spectrum is divided by: nothing, the root of the number of elements
// transformed, that number. DFT divides by the last when inverse.
enum Norm { kNone = 0, kRoot = 1, kCount = 2 };

struct Transform {
  std::vector<int64_t> axes = {};
  bool inverse = false;
  int64_t norm = kNone;
  bool half = false;  // of a real signal, along the last of the axes
};

ValueId Normalised(Lowering& n, const Operand& x, const Transform& t,
                   ValueId y) {
  const double power = (t.inverse ? 1.0 : 0.0) - 0.5 * double(t.norm);
  if (power == 0) return y;
  Emitter& e = n.emit();
  Num count = Num::Of(1);
  for (const int64_t axis : t.axes) count = e.Mul(count, n.Size(x, axis));
  const ValueId factor =
      e.Op("Pow", {e.Cast(e.Value(count, DType::kI64), DType::kI64, x.dtype()),
                   e.Number(power, x.dtype())});
  return e.Op("Mul", {y, factor});
}

void Return(Lowering& n, const Operand& x, const Transform& t) {
  Emitter& e = n.emit();
  ValueId y = x.meta->is_complex ? x.id : e.Unsqueeze(x.id, {x.rank()});
  bool half = t.half;  // first, while the signal is real
  for (size_t i = t.axes.size(); i-- > 0;) {
    y = e.Op("DFT", {y, kNoValue, e.Integer(t.axes[i], DType::kI64)},
             {{"inverse", int64_t{t.inverse}}, {"onesided", int64_t{half}}});
    half = false;
  }
  n.Return(Normalised(n, x, t, y));
}

int64_t NormOf(Lowering& n, bool inverse) {
  const std::string_view norm = n.Text("norm", "backward");
  if (norm == "ortho") return kRoot;
  return (norm == "forward") == inverse ? kNone : kCount;
}

void Fft(Lowering& n, bool inverse, bool half, bool all) {
  const Operand x = n.Arg("self");
  Transform t{.inverse = inverse, .norm = NormOf(n, inverse), .half = half};
  if (n.Has("n") || n.Has("s")) return n.Fail("signals cut or padded");
  if (half && x.meta->is_complex) return n.Fail("half of a complex spectrum");
  if (all) {
    t.axes = n.Axes("dim", x.rank());
  } else {
    t.axes = {n.Axis("dim", -1, x.rank())};
  }
  Return(n, x, t);
}
void Fft1(Lowering& n) { Fft(n, false, false, false); }
void FftN(Lowering& n) { Fft(n, false, false, true); }
void Ifft1(Lowering& n) { Fft(n, true, false, false); }
void IfftN(Lowering& n) { Fft(n, true, false, true); }
void Rfft1(Lowering& n) { Fft(n, false, true, false); }
void RfftN(Lowering& n) { Fft(n, false, true, true); }
// Without `dim`, the last two axes.
void Fft2(Lowering& n, bool inverse, bool half) {
  if (n.Has("dim")) return Fft(n, inverse, half, true);
  const Operand x = n.Arg("self");
  if (n.Has("s") || x.rank() < 2) return n.Fail("signals cut or padded");
  Return(n, x,
         {.axes = {x.rank() - 2, x.rank() - 1},
          .inverse = inverse,
          .norm = NormOf(n, inverse),
          .half = half});
}
void FftOfTwo(Lowering& n) { Fft2(n, false, false); }
void IfftOfTwo(Lowering& n) { Fft2(n, true, false); }
void RfftOfTwo(Lowering& n) { Fft2(n, false, true); }

void FftC2C(Lowering& n) {
  const Operand x = n.Arg("self");
  Return(n, x,
         {.axes = n.Axes("dim", x.rank()),
          .inverse = !n.Flag("forward", true),
          .norm = n.Int("normalization", 0)});
}

void FftR2C(Lowering& n) {
  const Operand x = n.Arg("self");
  Return(n, x,
         {.axes = n.Axes("dim", x.rank()),
          .norm = n.Int("normalization", 0),
          .half = n.Flag("onesided", true)});
}

// Half a spectrum to its real signal of `length` elements on the last axis.
void ToReal(Lowering& n, std::vector<int64_t> axes, int64_t norm,
            const Num& length) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  if (axes.empty()) return n.Fail("a transform of no axis");
  ValueId y = x.id;
  const int64_t last = axes.back();
  axes.pop_back();
  Num count = length;
  for (const int64_t axis : axes) {
    y = e.Op("DFT", {y, kNoValue, e.Integer(axis, DType::kI64)},
             {{"inverse", int64_t{1}}});
    count = e.Mul(count, n.Size(x, axis));
  }
  y = e.Op("DFT",
           {y, e.Value(length, DType::kI64), e.Integer(last, DType::kI64)},
           {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}});
  y = e.Squeeze(y, {x.rank()});
  const double power = 1 - 0.5 * double(norm);
  if (power != 0) {
    y = e.Op("Mul", {y, e.Op("Pow", {e.Cast(e.Value(count, DType::kI64),
                                            DType::kI64, x.dtype()),
                                     e.Number(power, x.dtype())})});
  }
  n.Return(y);
}

void FftC2R(Lowering& n) {
  const Operand x = n.Arg("self");
  ToReal(n, n.Axes("dim", x.rank()), n.Int("normalization", 0),
         n.Number("last_dim_size"));
}

// The length of the signal as the file has it.
void Irfft(Lowering& n, const std::vector<int64_t>& axes) {
  const TensorMeta* out = n.OutMeta(0);
  if (axes.empty() || out == nullptr || axes.back() >= out->rank() ||
      !out->sizes[static_cast<size_t>(axes.back())].fixed) {
    return n.Fail("an inverse transform whose length is not fixed");
  }
  ToReal(n, axes, NormOf(n, true),
         Num::Of(out->sizes[static_cast<size_t>(axes.back())].hint));
}
void Irfft1(Lowering& n) {
  Irfft(n, {n.Axis("dim", -1, n.Arg("self").rank())});
}
void Irfft2(Lowering& n) {
  const int rank = n.Arg("self").rank();
  if (n.Has("dim")) return Irfft(n, n.Axes("dim", rank));
  if (rank < 2) return n.Fail("a transform of two axes");
  Irfft(n, {rank - 2, rank - 1});
}

void IrfftN(Lowering& n) {
  if (n.Has("s")) return n.Fail("signals cut or padded");
  Irfft(n, n.Axes("dim", n.Arg("self").rank()));
}

// A signal [n, length] or [length] to [n, bins, frames].
void Stft(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const Num length = n.Number("n_fft");
  const Num step =
      n.Number("hop_length", n.emit().FloorDiv(length, Num::Of(4)));
  const bool windowed = n.Has("window");
  if (n.Flag("normalized", false)) return n.Fail("a normalised spectrum");
  if (windowed &&
      !(length.known() && n.Number("win_length", length).Is(length.integer))) {
    return n.Fail("a window shorter than its frame");
  }
  const ValueId signal = x.rank() == 1 ? e.Unsqueeze(x.id, {0}) : x.id;
  ValueId y =
      e.Op("STFT",
           {e.Unsqueeze(signal, {2}), e.Value(step, DType::kI64),
            windowed ? n.In("window") : kNoValue, e.Value(length, DType::kI64)},
           {{"onesided", int64_t{n.Flag("onesided", true)}}});
  y = e.Transpose(y, {0, 2, 1, 3});
  n.Return(x.rank() == 1 ? e.Squeeze(y, {0}) : y);
}

// Frames [n, length, steps] of a signal, each `hop` behind the last, added up
// where they overlap: [n, length + (steps - 1) * hop].
ValueId OverlapAdd(Lowering& n, ValueId frames, DType type, int64_t length,
                   int64_t hop) {
  Emitter& e = n.emit();
  models::Tensor identity =
      models::Tensor::Make(DType::kF32, {length, 1, length});
  std::fill_n(identity.data<float>(), length * length, 0.0f);
  for (int64_t i = 0; i < length; ++i) {
    identity.data<float>()[i * length + i] = 1;
  }
  const ValueId weight =
      e.Cast(e.Constant(std::move(identity)), DType::kF32, type);
  return e.Squeeze(e.Op("ConvTranspose", {frames, weight},
                        {{"kernel_shape", std::vector<int64_t>{length}},
                         {"strides", std::vector<int64_t>{hop}}}),
                   {1});
}

// The signal whose frames have these spectra [n, bins, steps], each frame
// windowed once more; what windows add up to is divided by.
void Istft(Lowering& n) {
  const Operand x = n.Arg("self");
  Emitter& e = n.emit();
  const int64_t length = n.Int("n_fft", 0);
  const int64_t hop = n.Int("hop_length", length / 4);
  const Operand window = n.ArgOrNone("window");
  if (length < 1 || length > (1 << 13) || hop < 1 || x.rank() < 2 ||
      x.rank() > 3 || n.Int("win_length", length) != length ||
      n.Flag("normalized", false) || !n.Flag("onesided", true) ||
      n.Flag("return_complex", false)) {
    return n.Fail("frames of this form (short windows, whole spectra)");
  }
  const DType type = x.dtype();
  const ValueId spectra = x.rank() == 2 ? e.Unsqueeze(x.id, {0}) : x.id;
  // DFT runs along an axis before the last one, the pairs.
  const ValueId frames = e.Squeeze(
      e.Op("DFT",
           {spectra, e.Integer(length, DType::kI64), e.Integer(1, DType::kI64)},
           {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}}),
      {3});
  const ValueId shape = window
                            ? e.Unsqueeze(window.id, {1})
                            : e.Expand(e.Number(1, type), e.Ints({length, 1}));
  const ValueId sum =
      OverlapAdd(n, e.Op("Mul", {frames, shape}), type, length, hop);
  const ValueId one_frame =
      e.Slice(frames, 0, Num::Of(0), Num::Of(1), Num::Of(1));
  const ValueId squares =
      e.Expand(e.Op("Mul", {shape, shape}), e.Shape(one_frame));
  const ValueId weight = OverlapAdd(n, squares, type, length, hop);
  const bool center = n.Flag("center", true);
  const int64_t cut = center ? length / 2 : 0;
  const auto kept = [&](ValueId y) {
    const Num end = n.Has("length") ? e.Add(n.Number("length"), Num::Of(cut))
                                    : e.Sub(e.SizeOf(y, 1), Num::Of(cut));
    return e.Slice(y, 1, Num::Of(cut), end, Num::Of(1));
  };
  const ValueId y = e.Op("Div", {kept(sum), kept(weight)});
  n.Return(x.rank() == 2 ? e.Squeeze(y, {0}) : y);
}

constexpr AtenOp kRows[] = {
    {"complex.aten.fft_fft.default", Fft1},
    {"complex.aten.fft_fft2.default", FftOfTwo},
    {"complex.aten.fft_fftn.default", FftN},
    {"complex.aten.fft_ifft.default", Ifft1},
    {"complex.aten.fft_ifft2.default", IfftOfTwo},
    {"complex.aten.fft_ifftn.default", IfftN},
    {"complex.aten.fft_rfft.default", Rfft1},
    {"complex.aten.fft_rfft2.default", RfftOfTwo},
    {"complex.aten.fft_rfftn.default", RfftN},
    {"complex.aten.fft_irfft.default", Irfft1},
    {"complex.aten.fft_irfft2.default", Irfft2},
    {"complex.aten._fft_c2c.default", FftC2C},
    {"complex.aten._fft_r2c.default", FftR2C},
    {"complex.aten._fft_c2r.default", FftC2R},
    {"complex.aten.stft.default", Stft},
    {"complex.aten.istft.default", Istft},
    {"complex.aten.fft_irfftn.default", IrfftN},
};

}  // namespace

std::span<const AtenOp> FourierRows() { return kRows; }

}  // namespace millrace::models::graph::pt2
