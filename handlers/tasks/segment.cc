// The answer names the classes that the picture has; the mask says where they
// are: as a PNG whose pixels are numbers of classes, or as runs.
#include <openssl/evp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/base/json.h"
#include "config/base/utf8.h"
#include "handlers/json_fields.h"
#include "handlers/tasks/class_mask.h"
#include "handlers/tasks/image_input.h"
#include "handlers/tasks/image_task.h"
#include "handlers/tasks/labels.h"
#include "models/image/encode_png.h"

namespace millrace::handlers {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxClasses = 65'536;
constexpr int64_t kMaxPngClasses = 256;
constexpr int64_t kMaxCounts = 4'000'000;

std::string Base64(const std::string& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

class SegmentAnswer final : public ImageAnswer {
 public:
  SegmentAnswer(Labels labels, std::string output, std::string mask)
      : labels_(std::move(labels)),
        output_(std::move(output)),
        mask_(std::move(mask)) {}

  Status Check(const Json& parameters) const override {
    return MaskForm(parameters).status();
  }

  StatusOr<std::string> Make(const TensorResponse& outputs,
                             const models::ImagePlacement& placement,
                             const Json& parameters) const override {
    ASSIGN_OR_RETURN(const std::string form, MaskForm(parameters));
    ASSIGN_OR_RETURN(const ClassMask of_input, Classes(outputs));
    const ClassMask mask = InPicture(of_input, placement);
    Json answer = {{"size", {mask.size.height, mask.size.width}},
                   {"classes", Json::array()}};
    std::map<int64_t, std::vector<int64_t>> runs;
    if (form == "rle") {
      ASSIGN_OR_RETURN(runs, RunLengths(mask, kMaxCounts));
    }
    for (const auto& [class_idx, pixels] : mask.PixelsByClass()) {
      Json one = {{"label", labels_.NameOf(class_idx)},
                  {"class", class_idx},
                  {"pixels", pixels}};
      if (form == "rle") {
        one["size"] = answer["size"];
        one["counts"] = std::move(runs[class_idx]);
      }
      answer["classes"].push_back(std::move(one));
    }
    if (form == "png") {
      ASSIGN_OR_RETURN(const std::string file, PngOf(mask));
      answer["mask"] = Base64(file);
    }
    return DumpJson(answer);
  }

 private:
  StatusOr<std::string> MaskForm(const Json& parameters) const {
    ASSIGN_OR_RETURN(const auto asked, ReadString(parameters, "mask"));
    const std::string form = asked.value_or(mask_);
    if (form == "png" || form == "rle") return form;
    return InvalidArgument("mask is '" + Shortened(form, 60) +
                           "' but must be png or rle")
        .At("mask");
  }

  StatusOr<ClassMask> Classes(const TensorResponse& outputs) const {
    const auto it =
        std::find_if(outputs.outputs.begin(), outputs.outputs.end(),
                     [&](const auto& each) { return each.name == output_; });
    if (it == outputs.outputs.end()) {
      return Internal("no output '" + output_ + "' came");
    }
    const models::Tensor& tensor = it->tensor;
    const models::Shape& shape = tensor.shape();
    const bool fits = tensor.dtype() == models::DType::kF32 &&
                      shape.rank() == 4 && shape[0] == 1 && shape[1] >= 2 &&
                      shape[1] <= kMaxClasses && shape[2] > 0 && shape[3] > 0;
    if (!fits) {
      return Internal("the model's output '" + output_ + "' is " +
                      models::TypeText(tensor.dtype(), shape) +
                      ", which is no FP32 [1, classes, height, width]");
    }
    return BestClasses(
        {tensor.data<float>(), static_cast<size_t>(tensor.num_elements())},
        shape[1], {shape[2], shape[3]});
  }

  static StatusOr<std::string> PngOf(const ClassMask& mask) {
    std::vector<uint8_t> pixels;
    pixels.reserve(mask.classes.size());
    for (const uint16_t class_idx : mask.classes) {
      if (class_idx >= kMaxPngClasses) {
        return InvalidArgument("a mask of class " + std::to_string(class_idx) +
                               " is no PNG of 8 bits; ask for mask: rle")
            .At("mask");
      }
      pixels.push_back(static_cast<uint8_t>(class_idx));
    }
    return models::EncodeGrayPng(pixels, mask.size.height, mask.size.width);
  }

  const Labels labels_;
  const std::string output_;
  const std::string mask_;
};

// The output of scores: torchvision's "out", transformers' "logits", else the
// first that fits.
StatusOr<std::string> FindOutput(const TaskParts& parts) {
  const std::vector<models::TensorSpec>& outputs = parts.tensors->outputs();
  const auto fits = [](const models::TensorSpec& spec) {
    return spec.dtype == models::DType::kF32 &&
           (!spec.rank_known || (spec.dims.size() == 4 && spec.dims[0] <= 1 &&
                                 spec.dims[1] != 1 && spec.dims[1] != 0));
  };
  const models::TensorSpec* chosen = nullptr;
  std::string found;
  for (const models::TensorSpec& spec : outputs) {
    found += (found.empty() ? "'" : ", '") + spec.name + "' " + spec.text;
    const bool is_named = spec.name == "out" || spec.name == "logits";
    if (fits(spec) && (chosen == nullptr || is_named)) chosen = &spec;
  }
  if (chosen != nullptr) return chosen->name;
  return InvalidArgument(
             "task 'segment' needs scores of two classes or more as FP32 [1, "
             "classes, height, width]; the graph has the outputs " +
             found)
      .At("task");
}

Status CheckClasses(const TaskParts& parts, const std::string& output,
                    int64_t num_labels) {
  for (const models::TensorSpec& spec : parts.tensors->outputs()) {
    if (spec.name != output || spec.dims.size() != 4 || spec.dims[1] < 0) {
      continue;
    }
    if (num_labels > spec.dims[1]) {
      return InvalidArgument("labels has " + std::to_string(num_labels) +
                             " names but '" + output + "' (" + spec.text +
                             ") has scores of " + std::to_string(spec.dims[1]) +
                             " classes")
          .At("task_options.labels");
    }
    if (spec.dims[1] > kMaxPngClasses && parts.answer.mask.mask == "png") {
      return InvalidArgument(
                 "mask is png, whose 8 bits hold 256 classes, but '" + output +
                 "' has " + std::to_string(spec.dims[1]) + "; say mask: rle")
          .At("task_options.mask");
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<ImageAnswer>> MakeSegmentAnswer(
    const TaskParts& parts) {
  ASSIGN_OR_RETURN(Labels labels, Labels::Load(parts));
  ASSIGN_OR_RETURN(std::string output, FindOutput(parts));
  RETURN_IF_ERROR(CheckClasses(parts, output, labels.size()));
  ASSIGN_OR_RETURN(const ImageInput input, ImageInput::Create(parts));
  if (input.options().center_crop.height > 0) {
    return InvalidArgument(
               "center_crop (or resize by the shorter side) cuts off parts of "
               "a picture, which its mask would lack; say resize: [height, "
               "width] or letterbox")
        .At("task_options.resize");
  }
  return std::make_unique<SegmentAnswer>(std::move(labels), std::move(output),
                                         parts.answer.mask.mask);
}

}  // namespace millrace::handlers
