// Requests with jagged features (models/graph/jagged.h) in one batch: values
// follow each other, offsets are shifted by the values before them.
//
//              request 1        request 2        batch
//   values     [7 2 9 4]        [5 5]            [7 2 9 4 5 5]
//   offsets    [0 2 2]          [0 1]            [0 2 2 4 5]
//   with an end [0 2 2 4]       [0 1 2]          [0 2 2 4 5 6]
//
// A request may give the length of each row instead of offsets. What does not
// fit is found here, before requests are joined. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/base/status.h"
#include "models/graph/batch_axis.h"
#include "models/tensor/tensor.h"
#include "scheduler/batch_job.h"

namespace millrace::scheduler {

class JaggedRows {
 public:
  // Of no feature: batch_tensors.h does all.
  JaggedRows() = default;
  JaggedRows(const std::vector<models::graph::JaggedFeature>& features,
             const std::vector<models::graph::Port>& ports);

  bool any() const { return !features_.empty(); }

  // Whether the input is values, offsets or weights of a feature.
  bool IsPart(size_t input) const {
    return input < is_part_.size() && is_part_[input];
  }
  // Cuts them into inputs of each feature, lengths in the place of its offsets,
  // and appends these places to `places`. INVALID_ARGUMENT: they do not fit.
  Status TakeKeyed(const KeyedJagged& keyed,
                   std::vector<models::Tensor>& inputs,
                   std::vector<size_t>& places) const;

  // What a request calls the lengths that it gives instead of these offsets:
  // "x_lengths" for "x_offsets", "x.lengths" for any other name; empty where
  // the input holds no offsets.
  const std::string& LengthsName(size_t input) const;
  // Makes offsets of those inputs, which hold lengths, INT64 or INT32.
  // INVALID_ARGUMENT names lengths that do not add up to the values.
  Status TakeLengths(const std::vector<size_t>& lengths,
                     std::vector<models::Tensor>& inputs) const;

  // Of inputs that fit the ports: the rows, which all features have, too.
  // INVALID_ARGUMENT names the offset that does not fit, or the index and the
  // rows of its table.
  StatusOr<int32_t> RowsOf(const std::vector<models::Tensor>& inputs) const;
  std::vector<models::Tensor> Join(
      const std::vector<const std::vector<models::Tensor>*>& parts) const;

 private:
  Status Check(const models::graph::JaggedFeature& feature, int64_t rows,
               const std::vector<models::Tensor>& inputs) const;

  std::vector<models::graph::JaggedFeature> features_;
  std::vector<std::string> names_;          // of the inputs
  std::vector<std::string> lengths_names_;  // likewise
  std::vector<models::DType> dtypes_;       // likewise
  std::vector<bool> is_part_;  // likewise: values, offsets or weights
};

}  // namespace millrace::scheduler
