// Normalisations of [n, c, ...] by channel or group of channels. Means and
// sums of squares are taken in f64.
#include <algorithm>
#include <cmath>

#include "models/graph/ops/op_groups.h"
#include "models/graph/ops/operands.h"

namespace millrace::models::graph {
namespace {

// x as [batch, channels, inner].
struct Planes {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t inner = 0;
};

Planes PlanesOf(const Shape& shape) {
  if (shape.rank() == 1) return {shape[0], 1, 1};
  return {shape[0], shape[1], shape.Product(2, shape.rank())};
}

Status ChannelOperands(const Call& call, size_t first, size_t last) {
  const Planes planes = PlanesOf(call.arg(0).shape);
  for (size_t i = first; i < last; ++i) {
    RETURN_IF_ERROR(FloatOperand(call, i, "a parameter of the channels"));
    RETURN_IF_ERROR(
        ShapeIs(call, i, {planes.channels}, "a parameter of the channels"));
  }
  return OkStatus();
}

// x, scale, bias, mean, variance. Scale and bias may be left out, as PyTorch
// allows. In training mode the batch's own statistics serve, and two outputs
// more are the running ones: momentum * given + (1 - momentum) * own.
Types InferBatch(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 5));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the operand"));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 1, "the operand"));
  if (!call.arg(3).given || !call.arg(4).given) {
    return InvalidArgument("mean and variance are missing");
  }
  RETURN_IF_ERROR(ChannelOperands(call, 1, 5));
  std::vector<ValueType> types = {{call.arg(0).dtype, call.arg(0).shape}};
  if (call.attrs().Int("training_mode", 0) != 0) {
    types.push_back({call.arg(3).dtype, call.arg(3).shape});
    types.push_back({call.arg(4).dtype, call.arg(4).shape});
  }
  return Outputs(call, std::move(types));
}

// Parameters may be of another width than x.
template <typename M>
std::vector<M> ParameterOf(const Arg& arg, int64_t channels, M otherwise) {
  if (!arg.given)
    return std::vector<M>(static_cast<size_t>(channels), otherwise);
  return DispatchFloat(arg.dtype, [&]<typename T>() {
    const std::vector<MathType<T>> values = Widened<T>(arg);
    return std::vector<M>(values.begin(), values.end());
  });
}

// The mean and the variance of one channel over all images.
template <typename T>
std::pair<double, double> StatisticsOf(const T* x, const Planes& planes,
                                       int64_t channel) {
  const auto count = static_cast<double>(planes.batch * planes.inner);
  const auto sum = [&](double shift, bool square) {
    double total = 0;
    for (int64_t n = 0; n < planes.batch; ++n) {
      const T* plane = x + (n * planes.channels + channel) * planes.inner;
      for (int64_t j = 0; j < planes.inner; ++j) {
        const double v = static_cast<double>(MathType<T>(plane[j])) - shift;
        total += square ? v * v : v;
      }
    }
    return total / count;
  };
  const double mean = sum(0, false);
  return {mean, sum(mean, true)};
}

// Replaces the given statistics by the batch's, which member 0 mixes into the
// running ones.
template <typename T, typename M>
void Train(const Call& call, std::span<const Result> results, const Team& team,
           std::vector<M>& mean, std::vector<M>& variance) {
  const Planes planes = PlanesOf(call.arg(0).shape);
  const double momentum = call.attrs().Float("momentum", 0.9);
  const auto mix = [&](size_t output, size_t channel, double given,
                       double own) {
    if (team.index != 0 || results.size() <= output) return;
    DispatchFloat(results[output].dtype, [&]<typename S>() {
      results[output].template data<S>()[channel] = static_cast<S>(
          static_cast<MathType<S>>(momentum * given + (1 - momentum) * own));
    });
  };
  for (size_t c = 0; c < mean.size(); ++c) {
    const auto [own_mean, own_variance] =
        StatisticsOf(call.arg(0).data<T>(), planes, static_cast<int64_t>(c));
    mix(1, c, mean[c], own_mean);
    mix(2, c, variance[c], own_variance);
    mean[c] = static_cast<M>(own_mean);
    variance[c] = static_cast<M>(own_variance);
  }
}

Status RunBatch(const Call& call, std::span<const Result> results,
                const Team& team) {
  const Planes planes = PlanesOf(call.arg(0).shape);
  const auto [begin, end] = team.Share(planes.batch * planes.channels);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const auto epsilon = static_cast<M>(call.attrs().Float("epsilon", 1e-5));
    const auto scale = ParameterOf<M>(call.arg(1), planes.channels, 1);
    const auto bias = ParameterOf<M>(call.arg(2), planes.channels, 0);
    auto mean = ParameterOf<M>(call.arg(3), planes.channels, 0);
    auto variance = ParameterOf<M>(call.arg(4), planes.channels, 1);
    if (call.attrs().Int("training_mode", 0) != 0) {
      Train<T>(call, results, team, mean, variance);
    }
    for (int64_t i = b; i < e; ++i) {
      const auto c = static_cast<size_t>(i % planes.channels);
      const M factor = scale[c] / std::sqrt(variance[c] + epsilon);
      const T* x = call.arg(0).data<T>() + i * planes.inner;
      T* y = results[0].data<T>() + i * planes.inner;
      for (int64_t j = 0; j < planes.inner; ++j) {
        y[j] = static_cast<T>((M(x[j]) - mean[c]) * factor + bias[c]);
      }
    }
  });
  return OkStatus();
}

// Each group of channels of each image has mean 0 and variance 1 before scale
// and bias; an instance is a group of one channel. Both may be left out.
int64_t NumGroups(const Call& call) {
  const int64_t channels = PlanesOf(call.arg(0).shape).channels;
  return call.node.Is("InstanceNormalization")
             ? channels
             : call.attrs().Int("num_groups", 0);
}

Types InferGroup(const Call& call) {
  RETURN_IF_ERROR(CountOperands(call, 1, 3));
  RETURN_IF_ERROR(FloatOperand(call, 0, "the operand"));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 2, "the operand"));
  RETURN_IF_ERROR(ChannelOperands(call, 1, 3));
  const int64_t channels = call.arg(0).shape[1];
  const int64_t groups = NumGroups(call);
  if (channels > 0 && (groups < 1 || channels % groups != 0)) {
    return InvalidArgument("num_groups is " + std::to_string(groups) +
                           ", which does not divide " +
                           std::to_string(channels) + " channels");
  }
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

Status RunGroup(const Call& call, std::span<const Result> results,
                const Team& team) {
  const Planes planes = PlanesOf(call.arg(0).shape);
  if (results[0].num_elements() == 0) return OkStatus();
  const int64_t groups = NumGroups(call);
  const int64_t per_group = planes.channels / groups;
  const int64_t size = per_group * planes.inner;
  const auto [begin, end] = team.Share(planes.batch * groups);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const auto epsilon = static_cast<M>(call.attrs().Float("epsilon", 1e-5));
    const auto scale = ParameterOf<M>(call.arg(1), planes.channels, 1);
    const auto bias = ParameterOf<M>(call.arg(2), planes.channels, 0);
    for (int64_t i = b; i < e; ++i) {
      const T* x = call.arg(0).data<T>() + i * size;
      T* y = results[0].data<T>() + i * size;
      const auto count = static_cast<double>(size);
      double sum = 0;
      for (int64_t j = 0; j < size; ++j) sum += M(x[j]);
      const M mean = static_cast<M>(sum / count);
      double squares = 0;
      for (int64_t j = 0; j < size; ++j) {
        const double away = M(x[j]) - mean;
        squares += away * away;
      }
      const M inverse =
          M(1) / std::sqrt(static_cast<M>(squares / count) + epsilon);
      for (int64_t c = 0; c < per_group; ++c) {
        const auto at = static_cast<size_t>(i % groups * per_group + c);
        for (int64_t j = c * planes.inner; j < (c + 1) * planes.inner; ++j) {
          y[j] =
              static_cast<T>((M(x[j]) - mean) * inverse * scale[at] + bias[at]);
        }
      }
    }
  });
  return OkStatus();
}

// Local response normalisation across `size` neighbouring channels.
Types InferLrn(const Call& call) {
  RETURN_IF_ERROR(OneFloat(call));
  RETURN_IF_ERROR(RankAtLeast(call.arg(0), 2, "the operand"));
  if (call.attrs().Int("size", 0) < 1) {
    return InvalidArgument("size is " +
                           std::to_string(call.attrs().Int("size", 0)) +
                           "; it must be 1 or more");
  }
  return Outputs(call, {{call.arg(0).dtype, call.arg(0).shape}});
}

Status RunLrn(const Call& call, std::span<const Result> results,
              const Team& team) {
  const Planes planes = PlanesOf(call.arg(0).shape);
  const int64_t size = call.attrs().Int("size", 1);
  const auto [begin, end] = team.Share(planes.batch * planes.channels);
  DispatchFloat(call.arg(0).dtype, [&, b = begin, e = end]<typename T>() {
    using M = MathType<T>;
    const auto alpha = static_cast<M>(call.attrs().Float("alpha", 1e-4));
    const auto beta = static_cast<M>(call.attrs().Float("beta", 0.75));
    const auto bias = static_cast<M>(call.attrs().Float("bias", 1));
    for (int64_t i = b; i < e; ++i) {
      const int64_t c = i % planes.channels;
      const int64_t low = std::max<int64_t>(0, c - (size - 1) / 2);
      const int64_t high = std::min(planes.channels - 1, c + size / 2);
      const T* x = call.arg(0).data<T>() + i * planes.inner;
      T* y = results[0].data<T>() + i * planes.inner;
      for (int64_t j = 0; j < planes.inner; ++j) {
        M squares = 0;
        for (int64_t k = low; k <= high; ++k) {
          const M v = x[(k - c) * planes.inner + j];
          squares += v * v;
        }
        y[j] = static_cast<T>(
            M(x[j]) /
            std::pow(bias + alpha / static_cast<M>(size) * squares, beta));
      }
    }
  });
  return OkStatus();
}

constexpr OpDef kOps[] = {
    {"BatchNormalization",
     InferBatch,
     RunBatch,
     Work::kSplits,
     {.layout = LayoutRule::kBatchNorm}},
    {"InstanceNormalization",
     InferGroup,
     RunGroup,
     Work::kSplits,
     {.layout = LayoutRule::kGroupNorm}},
    {"GroupNormalization",
     InferGroup,
     RunGroup,
     Work::kSplits,
     {.layout = LayoutRule::kGroupNorm}},
    {"LRN", InferLrn, RunLrn, Work::kSplits},
};

}  // namespace

std::span<const OpDef> ChannelNormOps() { return kOps; }

}  // namespace millrace::models::graph
