// The attributes of a node: numbers, texts and lists by name, as the ONNX
// specification types them. A fused operator, which only passes make, has typed
// parameters besides (fused_params.h).
//
//   Attrs attrs = {{"strides", std::vector<int64_t>{2, 2}}, {"epsilon", 1e-5}};
//   attrs.Int("group", 1);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace millrace::models::graph {

using AttrValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>>;

struct FusedParams;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string_view, AttrValue>> rows);

  void Set(std::string_view name, AttrValue value);
  void Erase(std::string_view name);
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The attribute, or what is said otherwise when it is absent or of another
  // type: importers refuse wrong types before a node is made.
  int64_t Int(std::string_view name, int64_t otherwise) const;
  double Float(std::string_view name, double otherwise) const;
  std::string_view Text(std::string_view name,
                        std::string_view otherwise) const;
  const std::vector<int64_t>& Ints(std::string_view name) const;  // or empty
  const std::vector<double>& Floats(std::string_view name) const;
  const std::vector<std::string>& Texts(std::string_view name) const;

  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  bool operator==(const Attrs& other) const;

  // Null for nodes whose operator is not fused.
  const FusedParams* fused() const { return fused_.get(); }
  void SetFused(std::shared_ptr<const FusedParams> fused) {
    fused_ = std::move(fused);
  }

 private:
  const AttrValue* Find(std::string_view name) const;

  std::vector<std::pair<std::string, AttrValue>> rows_;
  std::shared_ptr<const FusedParams> fused_;  // shared by copies
};

}  // namespace millrace::models::graph
