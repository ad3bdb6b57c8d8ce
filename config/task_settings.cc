#include "config/task_settings.h"

#include <utility>

#include "config/base/utf8.h"
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
    {TaskKind::kTranscribe, "transcribe"},
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
         .help = "order of the channels that the graph takes",
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
                 "at least twice what resize needs: faster, pixels differ a "
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
         .unit = Unit::kTokens,
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

void VisitMel(AudioTaskSettings& s, const SettingVisitor& visit) {
  visit({.name = "mel",
         .help = "how log-mel features are computed: as transformers' "
                 "WhisperFeatureExtractor, or as torchaudio's MelSpectrogram",
         .choices = {"whisper", "torchaudio"}},
        &s.mel);
  visit({.name = "n_mels",
         .help = "mel bands; 0: as many as the graph takes, else 80",
         .max = 512,
         .aliases = {{"feature_size"}}},
        &s.n_mels);
  visit({.name = "n_fft", .help = "samples of a frame", .min = 16, .max = 8192},
        &s.n_fft);
  visit({.name = "win_length",
         .help = "samples of a frame's window; 0: n_fft",
         .max = 8192},
        &s.win_length);
  visit({.name = "hop_length",
         .help = "samples from one frame to the next",
         .min = 1,
         .max = 8192},
        &s.hop_length);
  visit({.name = "f_min", .help = "Hz: where the lowest band begins"},
        &s.f_min);
  visit({.name = "f_max",
         .help = "Hz: where the highest band ends; 0: half the sample rate"},
        &s.f_max);
  visit({.name = "mel_scale",
         .help = "where bands lie; auto: slaney for whisper, htk for "
                 "torchaudio",
         .choices = {"auto", "htk", "slaney"}},
        &s.mel_scale);
  visit({.name = "mel_norm",
         .help = "slaney: bands have the same area; auto: slaney for whisper, "
                 "none for torchaudio",
         .choices = {"auto", "none", "slaney"}},
        &s.mel_norm);
  visit(
      {.name = "mel_log",
       .help = "whisper: its own form of log10; ln: ln(power + 1e-6); db: "
               "10 log10(power) within 80 dB of the loudest, as "
               "AmplitudeToDB; piecewise: of 16-bit samples ln(power) above e, "
               "power / e below, as torchaudio's RNN-T pipelines; auto: "
               "whisper or ln, as mel says",
       .choices = {"auto", "none", "whisper", "ln", "db", "piecewise"}},
      &s.mel_log);
}

void VisitAudio(AudioTaskSettings& s, const SettingVisitor& visit) {
  visit({.name = "features",
         .help = "what the graph takes: samples (waveform) or spectrograms "
                 "(log_mel); auto: by the number of its input's sizes",
         .choices = {"auto", "waveform", "log_mel"}},
        &s.features);
  visit({.name = "sample_rate",
         .help = "Hz that the graph takes; recordings of others are resampled",
         .min = 1000,
         .max = 192'000,
         .aliases = {{"sampling_rate"}}},
        &s.sample_rate);
  visit({.name = "max_duration",
         .help = "of a recording; a longer one is refused",
         .unit = Unit::kMilliseconds,
         .min = 1,
         .max = int64_t{24} * 3600 * 1000},
        &s.max_duration_ms);
  visit({.name = "chunk_length",
         .help = "pad each recording with silence to so long, and refuse "
                 "longer ones; 0: each keeps its length",
         .unit = Unit::kMilliseconds,
         .max = int64_t{3600} * 1000},
        &s.chunk_length_ms);
  visit({.name = "normalize",
         .help = "bring each waveform to mean 0 and variance 1, as "
                 "Wav2Vec2FeatureExtractor",
         .aliases = {{"do_normalize"}}},
        &s.normalize);
  VisitMel(s, visit);
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

bool IsAudioTask(TaskKind kind) { return kind == TaskKind::kTranscribe; }

bool IsTextTask(TaskKind kind) {
  return kind != TaskKind::kNone && !IsImageTask(kind) && !IsAudioTask(kind);
}

StatusOr<TaskKind> TaskFromName(const std::string& name) {
  std::string all;
  for (const auto& [kind, known] : kTasks) {
    if (known == name) return kind;
    all.append(all.empty() ? "" : ", ").append(known);
  }
  return InvalidArgument("task is '" + Shortened(name, 100) +
                         "' but must be one of: " + all)
      .At("task");
}

void VisitTaskSettings(TaskSettings& task, const SettingVisitor& visit) {
  const bool has_labels = IsImageTask(task.kind) ||
                          task.kind == TaskKind::kClassifyText ||
                          task.kind == TaskKind::kTokenClassify ||
                          task.kind == TaskKind::kTranscribe;
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
                   "gives them itself; auto: of texts what config.json beside "
                   "the model says (problem_type, the activation of "
                   "sentence-transformers), else softmax. A text with one "
                   "score has a sigmoid for a softmax",
           .choices = {"auto", "softmax", "sigmoid", "none"}},
          &task.activation);
  }
  if (IsImageTask(task.kind)) {
    VisitImage(task.image, task.kind == TaskKind::kClassify, visit);
  }
  if (IsTextTask(task.kind)) {
    VisitText(task.text, task.kind == TaskKind::kEmbed, visit);
  }
  if (IsAudioTask(task.kind)) VisitAudio(task.audio, visit);
}

}  // namespace millrace::config
