// Tensors as JSON numbers: `data` flat, or nested as the shape says.
//
//   TensorReader reader(head);           // a JsonArraySink
//   ... the parser calls it ...
//   ASSIGN_OR_RETURN(Tensor tensor, reader.Take());
//
// Numbers must fit the type: no integer beyond its range, no fraction in one,
// no float that would become infinite. BOOL is true, false, 0 or 1.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/base/json.h"
#include "config/base/status.h"
#include "models/tensor/tensor.h"
#include "models/tensor/tensor_spec.h"
#include "server/tensor_bytes.h"

namespace millrace::server {

// One tensor's `data`. Errors name the input.
class TensorReader final : public JsonArraySink {
 public:
  // The head's elements are made at once: the caller bounds their number.
  explicit TensorReader(TensorHead head);

  Status OnInteger(int64_t value) override;
  Status OnUnsigned(uint64_t value) override;
  Status OnReal(double value) override;
  Status OnBool(bool value) override;
  Status OnOther(std::string_view what) override;
  Status OnOpen() override;
  Status OnClose() override;

  const TensorHead& head() const { return head_; }
  bool done() const { return begun_ && depth_ == 0; }
  StatusOr<models::Tensor> Take();

 private:
  template <typename Value>
  Status Put(Value value);
  template <typename Value>
  Status Unfit(Value value) const;
  Status CheckPlace();

  const TensorHead head_;
  const int64_t num_elements_;
  models::Tensor tensor_;
  int64_t next_ = 0;     // element
  bool begun_ = false;   // an array was opened
  int depth_ = 0;        // arrays open
  int value_depth_ = 0;  // of the first value; all stand as deep
  // Items so far of the open array at each depth.
  std::array<int64_t, models::Shape::kMaxRank + 1> counts_ = {};
};

// [{"name": …, "datatype": …, "shape": […]}]: inputs or outputs of a model. An
// unknown rank is the shape [-1].
nlohmann::ordered_json TensorSpecsJson(
    const std::vector<models::TensorSpec>& specs);

// BYTES from JSON strings, whose UTF-8 are the elements: flat, or nested as the
// shape says.
StatusOr<models::Tensor> StringsFromJson(const TensorHead& head,
                                         const nlohmann::ordered_json& data);

// Appends `[v, v, …]`, flat. FAILED_PRECONDITION when a value is none that JSON
// can say (NaN, infinities, bytes that are no UTF-8).
Status AppendData(const std::string& name, const models::Tensor& tensor,
                  std::string& text);

// The same, nested as the shape says; axes before `first_axis`, each of size 1,
// are left out.
Status AppendNested(const std::string& name, const models::Tensor& tensor,
                    int first_axis, std::string& text);

}  // namespace millrace::server
