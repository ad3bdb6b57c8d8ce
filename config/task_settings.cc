#include "config/task_settings.h"

#include <utility>

#include "config/settings_visitor.h"

namespace millrace::config {
namespace {

constexpr std::pair<TaskKind, std::string_view> kTasks[] = {
    {TaskKind::kClassify, "classify"},
    {TaskKind::kDetect, "detect"},
    {TaskKind::kSegment, "segment"},
    {TaskKind::kEmbed, "embed"},
    {TaskKind::kRerank, "rerank"},
    {TaskKind::kClassifyText, "classify_text"},
    {TaskKind::kTokenClassify, "token_classify"},
};

void VisitImage(ImageTaskSettings& s, bool classifies,
                const SettingVisitor& visit) {
  visit({.name = "resize",
         .help = "pixels: length of the shorter side, or [height, width]; "
                 "[letterbox, height, width]: the whole picture in its "
                 "proportions, in the middle of grey; letterbox alone: of the "
                 "graph's size; empty: the picture keeps its size"},
        &s.resize);
  visit({.name = "interpolation",
         .help = "how pixels are made when a picture is resized, with "
                 "antialias, as PIL and torchvision do it",
         .choices = {"bilinear", "bicubic", "nearest"},
         .aliases = {{"resample"}}},
        &s.interpolation);
  visit({.name = "center_crop",
         .help = "pixels: side of the square, or [height, width], that is "
                 "cut out of the middle; empty: none",
         .aliases = {{"crop"}, {"crop_size"}}},
        &s.center_crop);
  visit({.name = "color",
         .help = "order of the channels that the graph wants",
         .choices = {"rgb", "bgr", "gray"}},
        &s.color);
  visit({.name = "rescale_factor",
         .help = "what pixels, 0 to 255, are multiplied by: a number or a "
                 "fraction such as 1/255",
         .aliases = {{"scale"}}},
        &s.rescale_factor);
  visit({.name = "mean",
         .help = "by channel, taken from rescaled pixels; empty: 0",
         .aliases = {{"image_mean"}}},
        &s.mean);
  visit({.name = "std",
         .help = "by channel, that they are divided by then; empty: 1",
         .aliases = {{"image_std"}}},
        &s.std);
  visit({.name = "layout",
         .help = "of the graph's input; auto: by where its sizes have the "
                 "channels",
         .choices = {"auto", "nchw", "nhwc"}},
        &s.layout);
  visit({.name = "max_pixels",
         .help = "of a picture; a larger one is refused before it is decoded",
         .min = 1,
         .max = int64_t{1} << 31},
        &s.max_pixels);
  // Other answers are places in the picture, whose size this changes.
  if (!classifies) return;
  visit({.name = "scaled_decoding",
         .help = "decode a JPEG at 1/2, 1/4 or 1/8 of its size where that is "
                 "at least twice what resize wants: faster, pixels differ a "
                 "little"},
        &s.scaled_decoding);
}

void VisitText(TextTaskSettings& s, bool embeds, const SettingVisitor& visit) {
  visit({.name = "tokenizer",
         .help = "file beside the model, in the form of Hugging Face"},
        &s.tokenizer);
  visit({.name = "max_length",
         .help = "tokens of a text with what stands around it; 0: as "
                 "sentence_bert_config.json, tokenizer_config.json and "
                 "config.json say",
         .max = 1 << 20,
         .aliases = {{"max_seq_length"}, {"max_model_len"}}},
        &s.max_length);
  visit({.name = "auto_truncate",
         .help = "cut texts that are longer; else they are refused, unless "
                 "the request asks for it"},
        &s.auto_truncate);
  if (!embeds) return;
  visit({.name = "pooling",
         .help = "how the vectors of a text's tokens become one; auto: as "
                 "1_Pooling/config.json says, else mean",
         .choices = {"auto", "mean", "cls", "max", "last"}},
        &s.pooling);
  visit({.name = "normalize",
         .help = "bring vectors to length 1; auto: true, but for models whose "
                 "modules.json has no such step",
         .choices = {"auto", "true", "false"}},
        &s.normalize);
}

}  // namespace

std::string_view TaskName(TaskKind kind) {
  for (const auto& [known, name] : kTasks) {
    if (known == kind) return name;
  }
  return "";
}

bool IsImageTask(TaskKind kind) {
  return kind == TaskKind::kClassify || kind == TaskKind::kDetect ||
         kind == TaskKind::kSegment;
}

bool IsTextTask(TaskKind kind) {
  return kind != TaskKind::kNone && !IsImageTask(kind);
}

StatusOr<TaskKind> TaskFromName(const std::string& name) {
  std::string all;
  for (const auto& [kind, known] : kTasks) {
    if (known == name) return kind;
    all.append(all.empty() ? "" : ", ").append(known);
  }
  return InvalidArgument("task is '" + name.substr(0, 100) +
                         "' but must be one of: " + all)
      .At("task");
}

void VisitTaskSettings(TaskSettings& task, const SettingVisitor& visit) {
  const bool has_labels = IsImageTask(task.kind) ||
                          task.kind == TaskKind::kClassifyText ||
                          task.kind == TaskKind::kTokenClassify;
  if (has_labels) {
    visit({.name = "labels",
           .help = "file beside the model with the names of the classes: a "
                   "JSON object by number (index_to_name.json of TorchServe), "
                   "a JSON list, or one name a line; empty: numbers"},
          &task.labels);
  }
  if (task.kind == TaskKind::kClassify ||
      task.kind == TaskKind::kClassifyText) {
    visit({.name = "top_k",
           .help = "classes in an answer, best first; 0: all",
           .max = 1 << 20,
           .aliases = {{"topk"}}},
          &task.top_k);
  }
  if (task.kind == TaskKind::kClassify ||
      task.kind == TaskKind::kClassifyText || task.kind == TaskKind::kRerank) {
    visit({.name = "activation",
           .help = "what makes probabilities of the graph's output; none: it "
                   "gives them itself. A text with one score has a sigmoid "
                   "for a softmax",
           .choices = {"softmax", "sigmoid", "none"}},
          &task.activation);
  }
  if (IsImageTask(task.kind)) {
    VisitImage(task.image, task.kind == TaskKind::kClassify, visit);
  }
  if (IsTextTask(task.kind)) {
    VisitText(task.text, task.kind == TaskKind::kEmbed, visit);
  }
}

}  // namespace millrace::config
