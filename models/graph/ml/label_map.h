// From values to values: what LabelEncoder, CategoryMapper, OneHotEncoder and
// DictVectorizer look up. Immutable once made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/base/status.h"
#include "models/tensor/strings.h"

namespace millrace::models::graph {

// A list of one type; one of the three vectors holds it.
struct LabelColumn {
  DType dtype = DType::kI64;
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  std::vector<double> reals;

  static LabelColumn Of(std::vector<std::string> values);
  static LabelColumn Of(std::vector<int64_t> values);
  static LabelColumn Of(std::vector<double> values, DType dtype);
  static StatusOr<LabelColumn> Of(const Tensor& tensor);
  size_t size() const { return texts.size() + numbers.size() + reals.size(); }
};

class LabelMap {
 public:
  // As many values as keys; `otherwise` is one value of the same type.
  static StatusOr<std::shared_ptr<LabelMap>> Make(LabelColumn keys,
                                                  LabelColumn values,
                                                  LabelColumn otherwise);

  // Its place among the values, or -1.
  int64_t Find(std::string_view key) const;
  int64_t Find(int64_t key) const;
  int64_t Find(double key) const;  // NaN is found, too

  DType key_type() const { return keys_.dtype; }
  size_t size() const { return keys_.size(); }
  const LabelColumn& values() const { return values_; }
  const LabelColumn& otherwise() const { return otherwise_; }
  int64_t num_bytes() const;

  // The other way round, where a node may mean either; or null.
  std::shared_ptr<const LabelMap> back;

 private:
  LabelMap(LabelColumn keys, LabelColumn values, LabelColumn otherwise);

  const LabelColumn keys_;
  const LabelColumn values_;
  const LabelColumn otherwise_;
  std::unordered_map<std::string_view, int64_t> by_text_;  // into keys_
  std::unordered_map<int64_t, int64_t> by_number_;  // of reals: their bits
};

}  // namespace millrace::models::graph
