// A small exported program written line by line, and the archive around it.
//
//   Pt2Program program;
//   program.Input("x", "[2, 3]");
//   program.Node("aten.relu.default", {Tensor("self", "x")}, "y", "[2, 3]");
//   program.Output("y");
//   ImportPt2Bytes(AsBytes(program.Archive()), …);
#pragma once

#include <cstring>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/files/zip_writer.h"

namespace millrace::models::graph {

// Arguments as the file writes them.
inline std::string Arg(const std::string& name, const std::string& value) {
  return R"({"name":")" + name + R"(","kind":1,"arg":)" + value + "}";
}
inline std::string TensorArg(const std::string& name,
                             const std::string& tensor) {
  return Arg(name, R"({"as_tensor":{"name":")" + tensor + "\"}}");
}
inline std::string IntArg(const std::string& name, const std::string& value) {
  return Arg(name, R"({"as_int":)" + value + "}");
}
inline std::string FloatArg(const std::string& name, const std::string& value) {
  return Arg(name, R"({"as_float":)" + value + "}");
}
inline std::string IntsArg(const std::string& name, const std::string& list) {
  return Arg(name, R"({"as_ints":)" + list + "}");
}

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class Pt2Program {
 public:
  // Sizes as numbers, or a symbol by its name; FP32 is 7, INT64 is 5.
  void Meta(const std::string& name, const std::vector<std::string>& sizes,
            int dtype = 7) {
    std::string list;
    std::string strides;
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      const bool number =
          sizes[i].find_first_not_of("0123456789") == std::string::npos;
      const std::string dim =
          number ? R"({"as_int":)" + sizes[i] + "}"
                 : R"x({"as_expr":{"expr_str":"Symbol(')x" + sizes[i] +
                       R"x(', positive=True, integer=True)",)x" +
                       R"("hint":{"as_int":2}}})";
      list = dim + (list.empty() ? "" : ",") + list;
      strides = R"({"as_int":)" + std::to_string(stride) + "}" +
                (strides.empty() ? "" : ",") + strides;
      stride *= number ? std::stoll(sizes[i]) : 2;
    }
    Append(metas_, "\"" + name + R"(":{"dtype":)" + std::to_string(dtype) +
                       R"(,"sizes":[)" + list + R"(],"strides":[)" + strides +
                       R"(],"storage_offset":{"as_int":0},"layout":7})");
  }
  void Input(const std::string& name, const std::vector<std::string>& sizes,
             int dtype = 7) {
    Meta(name, sizes, dtype);
    Append(inputs_, Tensor(name));
    Append(input_specs_, R"({"user_input":{"arg":)" + Tensor(name) + "}}");
  }
  // A parameter; `meta` describes how it lies in its bytes.
  void Weight(const std::string& name, const std::vector<std::string>& sizes,
              const std::vector<float>& values, const std::string& strides,
              int64_t offset = 0) {
    Meta(name, sizes);
    Append(inputs_, Tensor(name));
    Append(input_specs_, R"({"parameter":{"arg":{"name":")" + name +
                             R"("},"parameter_name":")" + name + "\"}}");
    std::string dims;
    for (const std::string& size : sizes) {
      dims += (dims.empty() ? "" : ",") + (R"({"as_int":)" + size + "}");
    }
    Append(config_,
           "\"" + name + R"(":{"path_name":")" + name +
               R"(","is_param":true,"use_pickle":false,"tensor_meta":)" +
               R"({"dtype":7,"sizes":[)" + dims + R"(],"strides":)" + strides +
               R"(,"storage_offset":{"as_int":)" + std::to_string(offset) +
               R"(},"layout":7}})");
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    weights_.emplace_back(name, bytes);
  }
  void Node(const std::string& target, const std::vector<std::string>& args,
            const std::string& out, const std::vector<std::string>& sizes,
            int dtype = 7) {
    Meta(out, sizes, dtype);
    RawNode(target, args, Tensor(out));
  }
  void RawNode(const std::string& target, const std::vector<std::string>& args,
               const std::string& outputs) {
    std::string list;
    for (const std::string& arg : args) list += (list.empty() ? "" : ",") + arg;
    Append(nodes_, R"({"target":"torch.ops.)" + target + R"(","inputs":[)" +
                       list + R"(],"outputs":[)" + outputs +
                       R"(],"metadata":{}})");
  }
  void Output(const std::string& name) {
    Append(outputs_, Tensor(name));
    Append(output_specs_, R"({"user_output":{"arg":)" + Tensor(name) + "}}");
  }

  // What orders effects, as the program takes it and gives it back.
  void Token(const std::string& name) {
    Meta(name, {"0"});
    Append(inputs_, Tensor(name));
    Append(input_specs_, R"({"token":{"arg":{"name":")" + name + "\"}}}");
  }
  void TokenOut(const std::string& name) {
    Append(outputs_, Tensor(name));
    Append(output_specs_, R"({"token":{"arg":{"name":")" + name + "\"}}}");
  }

  std::string Json() const {
    return R"({"graph_module":{"graph":{"inputs":[)" + inputs_ +
           R"(],"outputs":[)" + outputs_ + R"(],"nodes":[)" + nodes_ +
           R"(],"tensor_values":{)" + metas_ +
           R"(}},"signature":{"input_specs":[)" + input_specs_ +
           R"(],"output_specs":[)" + output_specs_ +
           R"(]},"module_call_graph":[]},"range_constraints":{"s0":)" +
           R"({"min_val":1,"max_val":64}},"schema_version":{"major":)" + major +
           R"(,"minor":20},"torch_version":"2.15.0"})";
  }
  std::string Archive() const { return Archive(Json()); }
  std::string Archive(const std::string& json) const {
    std::vector<std::pair<std::string, std::string>> entries = {
        {"archive_format", format},
        {"archive_version", "0"},
        {"byteorder", "little"},
        {"models/model.json", json},
        {"data/weights/model_weights_config.json",
         R"({"config":{)" + config_ + "}}"},
        {"data/constants/model_constants_config.json", R"({"config":{}})"}};
    for (const auto& [name, bytes] : weights_) {
      entries.emplace_back("data/weights/" + name, bytes);
    }
    std::ostringstream out;
    ZipWriter zip(out);
    for (const auto& [name, text] : entries) {
      zip.Add("tiny/" + name, {AsBytes(text)});
    }
    (void)zip.Finish();
    return out.str();
  }

  std::string format = "pt2";
  std::string major = "8";

 private:
  static std::string Tensor(const std::string& name) {
    return R"({"as_tensor":{"name":")" + name + "\"}}";
  }
  static void Append(std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ",") + item;
  }

  std::string metas_, inputs_, input_specs_, outputs_, output_specs_, nodes_,
      config_;
  std::vector<std::pair<std::string, std::string>> weights_;
};

}  // namespace millrace::models::graph
