// What the rewrites of ai.onnx.ml share: attributes, labels, heads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/base/status.h"
#include "models/graph/ml/op_data.h"
#include "models/graph/ml/scores.h"
#include "models/graph/onnx/rewrite.h"

namespace millrace::models::graph {

// The numbers of a tensor attribute, of any type; empty when it is left out.
StatusOr<std::vector<double>> TensorNumbers(NodeWriter& node,
                                            const std::string& name);
// The operand that holds an operator's data.
template <typename T>
ValueId DataValue(NodeWriter& node, std::shared_ptr<const T> data) {
  return node.Constant(DataTensor(std::move(data)));
}
// As FP32.
ValueId AsFloat(NodeWriter& node, ValueId value);
// `prefix` and "int64s", "ints" or "strings". INVALID_ARGUMENT: there are none.
StatusOr<std::shared_ptr<ClassifierHead>> ReadLabels(NodeWriter& node,
                                                     const std::string& prefix);
// Label and scores, by the post_transform of the node.
StatusOr<std::vector<ValueId>> EmitClassify(
    NodeWriter& node, ValueId scores, std::shared_ptr<ClassifierHead> head);

}  // namespace millrace::models::graph
