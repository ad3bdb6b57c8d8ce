#include "handlers/tensor_reshapes.h"

#include <algorithm>
#include <utility>

#include "handlers/forwarding_handler.h"
#include "handlers/named_tensors.h"
#include "models/tensor/strings.h"

namespace millrace::handlers {
namespace {

using config::TensorReshape;
using models::TensorSpec;

using Dims = std::vector<int64_t>;

Dims WithBatch(bool has_batch, Dims dims) {
  if (has_batch) dims.insert(dims.begin(), -1);
  return dims;
}

std::string TextOf(const Dims& dims) {
  std::string text;
  for (const int64_t size : dims) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

Status Wrong(const char* kind, const TensorReshape& tensor,
             const std::string& why) {
  return InvalidArgument(std::string("reshape of ") + kind + " '" +
                         tensor.name + "' " + why)
      .At("reshape");
}

// The products of what stands before, between and behind sizes that vary.
// Empty: a size is neither -1 nor at least 1, or there are too many elements.
Dims Segments(const Dims& dims) {
  Dims products = {1};
  for (const int64_t size : dims) {
    if (size == -1) {
      products.push_back(1);
      continue;
    }
    if (size < 1 || size > models::Shape::kMaxElements / products.back()) {
      return {};
    }
    products.back() *= size;
  }
  return products;
}

Status CheckPair(const char* kind, const TensorReshape& tensor,
                 bool has_batch) {
  for (const Dims* dims : {&tensor.dims, &tensor.shape}) {
    const bool fits = static_cast<int>(dims->size()) + (has_batch ? 1 : 0) <=
                      models::Shape::kMaxRank;
    if (fits && !Segments(*dims).empty()) continue;
    return Wrong(
        kind, tensor,
        "has " + TextOf(*dims) +
            ", but a size is -1 or at least 1, and there are at most " +
            std::to_string(models::Shape::kMaxRank) + " of them");
  }
  if (tensor.dims.empty()) {
    return Wrong(kind, tensor,
                 "has no dims beside it; say there what requests have");
  }
  if (tensor.shape.empty() && !has_batch) {
    return Wrong(kind, tensor,
                 "has an empty shape, which leaves the dimension of the batch "
                 "alone, but max_batch_size is 0");
  }
  if (Segments(tensor.dims) == Segments(tensor.shape)) return OkStatus();
  return Wrong(kind, tensor,
               "makes " + TextOf(tensor.shape) + " of " + TextOf(tensor.dims) +
                   ", which has other elements; both have as many -1, and as "
                   "many elements before, between and behind them");
}

// What callers see of the tensors.
StatusOr<std::vector<TensorSpec>> SpecsFor(
    const char* kind, bool has_batch, const std::vector<TensorReshape>& tensors,
    std::vector<TensorSpec> specs) {
  for (const TensorReshape& tensor : tensors) {
    RETURN_IF_ERROR(CheckPair(kind, tensor, has_batch));
    const auto spec = std::find_if(
        specs.begin(), specs.end(),
        [&](const TensorSpec& each) { return each.name == tensor.name; });
    if (spec == specs.end()) {
      return Wrong(kind, tensor, "is set, but the model has " + NamesOf(specs));
    }
    const Dims own = WithBatch(has_batch, tensor.shape);
    bool same = !spec->rank_known || own.size() == spec->dims.size();
    for (size_t i = 0; spec->rank_known && same && i < own.size(); ++i) {
      same = own[i] == spec->dims[i] || own[i] == -1 || spec->dims[i] == -1;
    }
    if (!same) {
      return Wrong(kind, tensor,
                   "gives the model " + TextOf(own) + ", which has " +
                       TextOf(spec->dims) +
                       (has_batch ? " (the first size is the batch's)" : ""));
    }
    spec->dims = WithBatch(has_batch, tensor.dims);
    spec->rank_known = true;
    spec->text = std::string(DTypeName(spec->dtype)) + " " + TextOf(spec->dims);
  }
  return specs;
}

// The sizes of `from` that vary, and the batch's, in the places of those of
// `to`. `actual` fits `from`.
models::Shape Moved(const Dims& from, const Dims& to,
                    const models::Shape& actual) {
  Dims varying;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == -1) varying.push_back(actual[static_cast<int>(i)]);
  }
  Dims moved = to;
  size_t next = 0;
  for (int64_t& size : moved) {
    if (size == -1) size = varying[next++];
  }
  return models::Shape(moved);
}

bool Fits(const Dims& dims, const models::Shape& shape) {
  if (shape.rank() != static_cast<int>(dims.size())) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != -1 && dims[i] != shape[static_cast<int>(i)]) return false;
  }
  return true;
}

const TensorReshape* Find(const std::vector<TensorReshape>& tensors,
                          const std::string& name) {
  const auto at = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const TensorReshape& each) { return each.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

class ReshapingHandler final : public ForwardingHandler {
 public:
  ReshapingHandler(std::unique_ptr<TensorHandler> inner, std::string model,
                   std::shared_ptr<const TensorReshapes> reshapes)
      : ForwardingHandler(std::move(inner)),
        model_(std::move(model)),
        reshapes_(std::move(reshapes)) {}

  void Start(TensorRequest request, Done done, std::stop_token stop) override {
    const Status fits = reshapes_->ToModel(model_, &request.inputs);
    if (!fits.ok()) return done(fits);
    inner().Start(
        std::move(request),
        [reshapes = reshapes_,
         done = std::move(done)](StatusOr<TensorResponse> response) {
          if (response.ok()) {
            Status reshaped = reshapes->ToCaller(&response->outputs);
            if (!reshaped.ok()) return done(std::move(reshaped));
          }
          done(std::move(response));
        },
        std::move(stop));
  }

  const std::vector<TensorSpec>& inputs() const override {
    return reshapes_->inputs();
  }
  const std::vector<TensorSpec>& outputs() const override {
    return reshapes_->outputs();
  }

 private:
  const std::string model_;
  const std::shared_ptr<const TensorReshapes> reshapes_;
};

}  // namespace

StatusOr<std::shared_ptr<const TensorReshapes>> TensorReshapes::Create(
    const config::ReshapeSettings& settings,
    const std::vector<TensorSpec>& inputs,
    const std::vector<TensorSpec>& outputs) {
  std::shared_ptr<TensorReshapes> made(new TensorReshapes());
  made->settings_ = settings;
  ASSIGN_OR_RETURN(made->inputs_, SpecsFor("input", settings.has_batch,
                                           settings.inputs, inputs));
  ASSIGN_OR_RETURN(made->outputs_, SpecsFor("output", settings.has_batch,
                                            settings.outputs, outputs));
  return std::shared_ptr<const TensorReshapes>(std::move(made));
}

Status TensorReshapes::ToModel(const std::string& model,
                               std::vector<NamedTensor>* inputs) const {
  for (NamedTensor& input : *inputs) {
    const TensorReshape* const tensor = Find(settings_.inputs, input.name);
    if (tensor == nullptr) continue;
    const auto spec = std::find_if(
        inputs_.begin(), inputs_.end(),
        [&](const TensorSpec& each) { return each.name == input.name; });
    RETURN_IF_ERROR(CheckFits(*spec, input.tensor, model));
    input.tensor = input.tensor.Reshaped(
        Moved(spec->dims, WithBatch(settings_.has_batch, tensor->shape),
              input.tensor.shape()));
  }
  return OkStatus();
}

Status TensorReshapes::ToCaller(std::vector<NamedTensor>* outputs) const {
  for (NamedTensor& output : *outputs) {
    const TensorReshape* const tensor = Find(settings_.outputs, output.name);
    if (tensor == nullptr) continue;
    const Dims own = WithBatch(settings_.has_batch, tensor->shape);
    if (!Fits(own, output.tensor.shape())) {
      return Internal("output '" + output.name + "' has shape " +
                      output.tensor.shape().ToString() +
                      " but its reshape says " + TextOf(own));
    }
    output.tensor = output.tensor.Reshaped(
        Moved(own, WithBatch(settings_.has_batch, tensor->dims),
              output.tensor.shape()));
  }
  return OkStatus();
}

std::unique_ptr<TensorHandler> MakeReshapingHandler(
    std::unique_ptr<TensorHandler> inner, std::string model,
    std::shared_ptr<const TensorReshapes> reshapes) {
  return std::make_unique<ReshapingHandler>(std::move(inner), std::move(model),
                                            std::move(reshapes));
}

}  // namespace millrace::handlers
