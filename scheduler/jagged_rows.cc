#include "scheduler/jagged_rows.h"

#include <algorithm>
#include <utility>

#include "scheduler/batch_tensors.h"

namespace millrace::scheduler {
namespace {

using models::DType;
using models::Tensor;
using models::graph::JaggedFeature;
using models::graph::Port;

int64_t IntegerAt(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DType::kI32 ? int64_t{tensor.data<int32_t>()[i]}
                                       : tensor.data<int64_t>()[i];
}

void SetInteger(Tensor& tensor, int64_t i, int64_t value) {
  if (tensor.dtype() == DType::kI32) {
    tensor.data<int32_t>()[i] = static_cast<int32_t>(value);
  } else {
    tensor.data<int64_t>()[i] = value;
  }
}

// Elements of a vector.
Tensor Part(const Tensor& whole, int64_t begin, int64_t end) {
  Tensor part = Tensor::Make(whole.dtype(), {end - begin});
  const int64_t size = models::DTypeBytes(whole.dtype());
  std::copy_n(whole.bytes() + begin * size, (end - begin) * size, part.bytes());
  return part;
}

std::string LengthsNameOf(const std::string& offsets) {
  constexpr std::string_view kOffsets = "offsets";
  if (!offsets.ends_with(kOffsets)) return offsets + ".lengths";
  return offsets.substr(0, offsets.size() - kOffsets.size()) + "lengths";
}

}  // namespace

JaggedRows::JaggedRows(const std::vector<JaggedFeature>& features,
                       const std::vector<Port>& ports)
    : features_(features),
      lengths_names_(ports.size()),
      is_part_(ports.size()) {
  for (const Port& port : ports) {
    names_.push_back(port.name);
    dtypes_.push_back(port.dtype);
  }
  for (const JaggedFeature& feature : features_) {
    is_part_[feature.values] = is_part_[feature.offsets] = true;
    for (const size_t weights : feature.weights) is_part_[weights] = true;
    const std::string name = LengthsNameOf(names_[feature.offsets]);
    // An input of the model has the name first.
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
      lengths_names_[feature.offsets] = name;
    }
  }
}

Status JaggedRows::TakeKeyed(const KeyedJagged& keyed,
                             std::vector<Tensor>& inputs,
                             std::vector<size_t>& places) const {
  const auto num_features = static_cast<int64_t>(features_.size());
  const Tensor& lengths = keyed.lengths;
  const int64_t count = lengths.num_elements();
  if ((lengths.dtype() != DType::kI64 && lengths.dtype() != DType::kI32) ||
      count % num_features != 0) {
    return InvalidArgument(
               "'keyed_lengths' is " +
               models::TypeText(lengths.dtype(), lengths.shape()) +
               ", but INT64 or INT32 is wanted, one length for each row of "
               "each of " +
               std::to_string(num_features) + " features")
        .At("keyed_lengths");
  }
  const int64_t num_rows = count / num_features;
  const int64_t num_values = keyed.values.num_elements();
  if (keyed.weights.has_value() &&
      keyed.weights->num_elements() != num_values) {
    return InvalidArgument("'keyed_weights' has " +
                           std::to_string(keyed.weights->num_elements()) +
                           " weights for " + std::to_string(num_values) +
                           " values")
        .At("keyed_weights");
  }
  const auto check_type = [&](const Tensor& given, const char* name,
                              size_t input) {
    if (given.dtype() == dtypes_[input] && given.shape().rank() == 1) {
      return OkStatus();
    }
    return InvalidArgument("'" + std::string(name) + "' is " +
                           models::TypeText(given.dtype(), given.shape()) +
                           ", but '" + names_[input] + "' of the model is " +
                           models::TypeText(dtypes_[input], {num_values}))
        .At(name);
  };
  int64_t begin = 0;
  bool takes_weights = false;
  for (int64_t k = 0; k < num_features; ++k) {
    const JaggedFeature& feature = features_[static_cast<size_t>(k)];
    int64_t end = begin;
    for (int64_t i = k * num_rows; i < (k + 1) * num_rows; ++i) {
      const int64_t length = IntegerAt(lengths, i);
      if (length < 0 || length > num_values - end) {
        return InvalidArgument("'keyed_lengths' has " + std::to_string(length) +
                               " at place " + std::to_string(i) + ", but " +
                               std::to_string(num_values - end) +
                               " values are left there")
            .At("keyed_lengths");
      }
      end += length;
    }
    RETURN_IF_ERROR(check_type(keyed.values, "keyed_values", feature.values));
    inputs[feature.offsets] = Part(lengths, k * num_rows, (k + 1) * num_rows);
    inputs[feature.values] = Part(keyed.values, begin, end);
    for (const size_t weights : feature.weights) {
      if (!keyed.weights.has_value()) {
        return InvalidArgument("'keyed_weights' is missing: the feature '" +
                               names_[feature.values] + "' has weights")
            .At("keyed_weights");
      }
      RETURN_IF_ERROR(check_type(*keyed.weights, "keyed_weights", weights));
      inputs[weights] = Part(*keyed.weights, begin, end);
      takes_weights = true;
    }
    places.push_back(feature.offsets);
    begin = end;
  }
  if (begin != num_values) {
    return InvalidArgument("'keyed_lengths' adds up to " +
                           std::to_string(begin) + ", but 'keyed_values' has " +
                           std::to_string(num_values) + " values")
        .At("keyed_lengths");
  }
  if (keyed.weights.has_value() && !takes_weights) {
    return InvalidArgument("no feature of the model takes 'keyed_weights'")
        .At("keyed_weights");
  }
  return OkStatus();
}

const std::string& JaggedRows::LengthsName(size_t input) const {
  static const std::string kNone;
  return input < lengths_names_.size() ? lengths_names_[input] : kNone;
}

Status JaggedRows::TakeLengths(const std::vector<size_t>& lengths,
                               std::vector<Tensor>& inputs) const {
  for (const JaggedFeature& feature : features_) {
    if (std::find(lengths.begin(), lengths.end(), feature.offsets) ==
        lengths.end()) {
      continue;
    }
    const std::string& name = lengths_names_[feature.offsets];
    const Tensor given = std::move(inputs[feature.offsets]);
    const bool fits =
        given.shape().rank() == 1 &&
        (given.dtype() == DType::kI64 || given.dtype() == DType::kI32);
    if (!fits) {
      return InvalidArgument("input '" + name + "' is " +
                             models::TypeText(given.dtype(), given.shape()) +
                             ", but lengths are INT64 or INT32, one for each "
                             "row")
          .At(name);
    }
    const int64_t rows = given.num_elements();
    const int64_t values = inputs[feature.values].num_elements();
    Tensor offsets = Tensor::Make(dtypes_[feature.offsets],
                                  {rows + (feature.has_end ? 1 : 0)});
    int64_t at = 0;
    for (int64_t row = 0; row < rows; ++row) {
      SetInteger(offsets, row, at);
      const int64_t length = IntegerAt(given, row);
      if (length < 0 || length > values - at) {
        return InvalidArgument("'" + name + "' has the length " +
                               std::to_string(length) + " at place " +
                               std::to_string(row) + ", but " +
                               std::to_string(values - at) + " of the " +
                               std::to_string(values) + " values of '" +
                               names_[feature.values] + "' are left there")
            .At(name);
      }
      at += length;
    }
    if (at != values) {
      return InvalidArgument("'" + name + "' adds up to " + std::to_string(at) +
                             ", but '" + names_[feature.values] + "' has " +
                             std::to_string(values) + " values")
          .At(name);
    }
    if (feature.has_end) SetInteger(offsets, rows, at);
    inputs[feature.offsets] = std::move(offsets);
  }
  return OkStatus();
}

Status JaggedRows::Check(const JaggedFeature& feature, int64_t rows,
                         const std::vector<Tensor>& inputs) const {
  const Tensor& values = inputs[feature.values];
  const Tensor& offsets = inputs[feature.offsets];
  const std::string& name = names_[feature.offsets];
  const int64_t count = offsets.num_elements();
  const int64_t num_values = values.num_elements();
  if (count != rows + (feature.has_end ? 1 : 0)) {
    return InvalidArgument("'" + name + "' has " + std::to_string(count) +
                           " offsets, but a request of " +
                           std::to_string(rows) + " rows has " +
                           (feature.has_end ? std::to_string(rows + 1) +
                                                  ", one for each and the end"
                                            : "one for each"))
        .At(name);
  }
  int64_t before = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = IntegerAt(offsets, i);
    const bool is_end = feature.has_end && i + 1 == count;
    const bool fits = i == 0 ? at == 0 : at >= before && at <= num_values;
    if (!fits || (is_end && at != num_values)) {
      return InvalidArgument("'" + name + "' has " + std::to_string(at) +
                             " at place " + std::to_string(i) +
                             "; offsets begin with 0, do not fall, and "
                             "end at " +
                             std::to_string(num_values) +
                             ", the number of values in '" +
                             names_[feature.values] + "'")
          .At(name);
    }
    before = at;
  }
  for (int64_t i = 0; i < num_values; ++i) {
    const int64_t index = IntegerAt(values, i);
    if (index >= 0 && index < feature.num_rows) continue;
    return InvalidArgument("'" + names_[feature.values] + "' has the index " +
                           std::to_string(index) + " at place " +
                           std::to_string(i) + ", but its table has " +
                           std::to_string(feature.num_rows) +
                           " rows; send indices from 0 to " +
                           std::to_string(feature.num_rows - 1))
        .At(names_[feature.values]);
  }
  return OkStatus();
}

StatusOr<int32_t> JaggedRows::RowsOf(const std::vector<Tensor>& inputs) const {
  std::vector<Tensor> others;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_part_[i]) continue;
    others.push_back(inputs[i].Share());
    names.push_back(names_[i]);
  }
  if (others.empty()) {
    const JaggedFeature& first = features_.front();
    others.push_back(inputs[first.offsets].Share());
    names.push_back(names_[first.offsets]);
  }
  ASSIGN_OR_RETURN(int32_t rows, scheduler::RowsOf(others, names));
  const bool counts_end = names.front() == names_[features_.front().offsets] &&
                          features_.front().has_end;
  if (counts_end) rows = std::max(rows - 1, 0);
  for (const JaggedFeature& feature : features_) {
    RETURN_IF_ERROR(Check(feature, rows, inputs));
  }
  return rows;
}

std::vector<Tensor> JaggedRows::Join(
    const std::vector<const std::vector<Tensor>*>& parts) const {
  std::vector<Tensor> joined = JoinRows(parts);
  for (const JaggedFeature& feature : features_) {
    Tensor& all = joined[feature.offsets];
    int64_t rows = 0;
    int64_t values = 0;
    for (const auto* part : parts) {
      const Tensor& offsets = (*part)[feature.offsets];
      const int64_t count = offsets.num_elements() - (feature.has_end ? 1 : 0);
      for (int64_t i = 0; i < count; ++i) {
        SetInteger(all, rows + i, values + IntegerAt(offsets, i));
      }
      rows += count;
      values += (*part)[feature.values].num_elements();
    }
    if (!feature.has_end) continue;
    SetInteger(all, rows, values);
    // Joined as rows they had an end for each part.
    Tensor whole = Tensor::Make(all.dtype(), {rows + 1});
    for (int64_t i = 0; i <= rows; ++i) SetInteger(whole, i, IntegerAt(all, i));
    all = std::move(whole);
  }
  return joined;
}

}  // namespace millrace::scheduler
