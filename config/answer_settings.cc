#include "config/answer_settings.h"

#include "config/answer_visitor.h"

namespace millrace::config {
namespace {

void VisitEntities(EntitySettings& s, const SettingVisitor& visit) {
  visit({.name = "aggregation_strategy",
         .help = "how labelled tokens become entities, as in transformers; "
                 "none: each token stands alone. A request may say another",
         .choices = {"none", "simple", "first", "average", "max"}},
        &s.aggregation_strategy);
  visit({.name = "ignore_labels",
         .help = "labels that no entity is made of; empty: none. A request "
                 "may say others"},
        &s.ignore_labels);
}

void VisitDetection(DetectionSettings& s, const SettingVisitor& visit) {
  visit({.name = "output_format",
         .help = "yolo: one output [1, 4 + classes, anchors] or [1, anchors, "
                 "4 + classes], each anchor a centre, a size and scores, as "
                 "YOLO v8 and v11 have it; boxes: outputs boxes [n, 4] (x1, "
                 "y1, x2, y2), scores [n] and labels [n], as torchvision "
                 "has it; auto: boxes where there are such, else yolo",
         .choices = {"auto", "yolo", "boxes"}},
        &s.output_format);
  visit({.name = "box_unit",
         .help = "of the graph's boxes: pixels of its input, or parts of its "
                 "width and height, 0 to 1",
         .choices = {"pixels", "relative"}},
        &s.box_unit);
  visit({.name = "score_threshold",
         .help = "0 to 1: boxes with a lesser score are left out. A request "
                 "may say another",
         .aliases = {{"threshold"}, {"conf"}}},
        &s.score_threshold);
  visit({.name = "iou_threshold",
         .help = "0 to 1: of two boxes of a class that overlap by more, the "
                 "one with the lesser score is left out; yolo alone. A "
                 "request may say another",
         .aliases = {{"nms_threshold"}, {"iou"}}},
        &s.iou_threshold);
  visit({.name = "max_detections",
         .help = "boxes of one picture, best first. A request may say fewer",
         .min = 1,
         .max = 10'000,
         .aliases = {{"max_det"}}},
        &s.max_detections);
  visit({.name = "class_agnostic",
         .help = "boxes of different classes leave each other out, too",
         .aliases = {{"agnostic_nms"}}},
        &s.class_agnostic);
}

void VisitTranscript(TranscriptSettings& s, const SettingVisitor& visit) {
  visit({.name = "blank",
         .help = "label or number of the blank of CTC; empty: <blank>, <blk>, "
                 "<pad> or [PAD] where there is such a label, else 0",
         .aliases = {{"blank_id"}}},
        &s.blank);
  visit({.name = "word_delimiter",
         .help = "label that stands between words; a label that begins with "
                 "U+2581 begins a word, too",
         .aliases = {{"word_delimiter_token"}}},
        &s.word_delimiter);
  visit({.name = "language",
         .help = "of the texts, given in verbose answers, such as english"},
        &s.language);
  visit({.name = "beam_width",
         .help = "prefixes that are kept from frame to frame; 1: the best "
                 "label of each frame is taken",
         .min = 1,
         .max = 64},
        &s.beam_width);
}

}  // namespace

void VisitAnswerSettings(AnswerSettings& answer, TaskKind kind,
                         const SettingVisitor& visit) {
  if (kind == TaskKind::kTokenClassify) VisitEntities(answer.entities, visit);
  if (kind == TaskKind::kDetect) VisitDetection(answer.detection, visit);
  if (kind == TaskKind::kTranscribe) VisitTranscript(answer.transcript, visit);
  if (kind == TaskKind::kSegment) {
    visit({.name = "mask",
           .help = "how a mask of classes is sent: png (a byte for each "
                   "pixel, in base64) or rle (COCO's counts, for each class). "
                   "A request may say another",
           .choices = {"png", "rle"}},
          &answer.mask.mask);
  }
}

}  // namespace millrace::config
