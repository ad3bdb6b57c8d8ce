// Overloads and default values are younger than the protobuf classes: they are
// read from the fields that those keep as unknown.
#include "models/graph/onnx/functions.h"

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include "models/graph/onnx/text.h"

namespace millrace::models::graph {
namespace {

constexpr int kFunctionAttributeProto = 11;
constexpr int kFunctionOverload = 13;
constexpr int kNodeOverload = 8;

std::string UnknownText(const google::protobuf::UnknownFieldSet& fields,
                        int number) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      return field.length_delimited();
    }
  }
  return "";
}

std::string Key(const std::string& domain, const std::string& name,
                const std::string& overload) {
  return (domain == "ai.onnx" ? "" : domain) + '\0' + name + '\0' + overload;
}

}  // namespace

StatusOr<FunctionTable> FunctionTable::Create(const onnx::ModelProto& model) {
  FunctionTable table;
  for (const onnx::FunctionProto& proto : model.functions()) {
    Function function{&proto, OpsetsOf(proto.opset_import()), {}};
    const auto& unknown = proto.unknown_fields();
    for (int i = 0; i < unknown.field_count(); ++i) {
      const auto& field = unknown.field(i);
      if (field.number() != kFunctionAttributeProto ||
          field.type() !=
              google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
        continue;
      }
      auto attribute = std::make_shared<onnx::AttributeProto>();
      if (!attribute->ParseFromString(field.length_delimited())) {
        return InvalidArgument("function " + Quoted(proto.name()) +
                               " has a broken default attribute");
      }
      function.defaults[attribute->name()] = attribute.get();
      table.defaults_.push_back(std::move(attribute));
    }
    const std::string overload = UnknownText(unknown, kFunctionOverload);
    if (!table.functions_
             .emplace(Key(proto.domain(), proto.name(), overload),
                      std::move(function))
             .second) {
      return InvalidArgument("there are two functions " + Quoted(proto.name()));
    }
  }
  return table;
}

const Function* FunctionTable::Find(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found =
      functions_.find(Key(node.domain(), node.op_type(),
                          UnknownText(node.unknown_fields(), kNodeOverload)));
  return found != functions_.end() ? &found->second : nullptr;
}

}  // namespace millrace::models::graph
