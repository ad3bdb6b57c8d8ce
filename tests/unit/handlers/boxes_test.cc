// Boxes that hide each other, beside a plain reference; masks and their runs.
#include "handlers/tasks/boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "handlers/tasks/class_mask.h"

namespace millrace::handlers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Boxes, OverlapByHand) {
  const Detection a{.x1 = 0, .y1 = 0, .x2 = 2, .y2 = 2};
  const Detection b{.x1 = 1, .y1 = 0, .x2 = 3, .y2 = 2};
  EXPECT_DOUBLE_EQ(IntersectionOverUnion(a, b), 2.0 / 6);
  EXPECT_DOUBLE_EQ(IntersectionOverUnion(a, a), 1);
  const Detection far{.x1 = 5, .y1 = 5, .x2 = 6, .y2 = 6};
  EXPECT_EQ(IntersectionOverUnion(a, far), 0);
  const Detection none{.x1 = 1, .y1 = 1, .x2 = 1, .y2 = 1};
  EXPECT_EQ(IntersectionOverUnion(none, none), 0);
}

// All pairs: a box stays where no better one that stays overlaps too much.
std::vector<double> Reference(std::vector<Detection> boxes, double threshold,
                              bool agnostic) {
  std::sort(boxes.begin(), boxes.end(),
            [](const auto& a, const auto& b) { return a.score > b.score; });
  std::vector<bool> hidden(boxes.size());
  std::vector<double> scores;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (hidden[i]) continue;
    scores.push_back(boxes[i].score);
    for (size_t j = i + 1; j < boxes.size(); ++j) {
      if (!agnostic && boxes[i].class_idx != boxes[j].class_idx) continue;
      if (IntersectionOverUnion(boxes[i], boxes[j]) > threshold) {
        hidden[j] = true;
      }
    }
  }
  return scores;
}

TEST(Boxes, SuppressionIsThatOfAllPairs) {
  std::mt19937 draw(5);
  std::uniform_real_distribution<double> place(0, 20), size(1, 12), score(0, 1);
  for (int round = 0; round < 50; ++round) {
    std::vector<Detection> boxes;
    for (int i = 0; i < 60; ++i) {
      Detection box{.x1 = place(draw), .y1 = place(draw)};
      box.x2 = box.x1 + size(draw);
      box.y2 = box.y1 + size(draw);
      box.score = score(draw);
      box.class_idx = i % 3;
      boxes.push_back(box);
    }
    for (const bool agnostic : {false, true}) {
      std::vector<double> scores;
      for (const Detection& box :
           Suppress(boxes, {.iou_threshold = 0.3,
                           .max_detections = 1000,
                           .class_agnostic = agnostic})) {
        scores.push_back(box.score);
      }
      EXPECT_EQ(scores, Reference(boxes, 0.3, agnostic));
      EXPECT_EQ(
          Suppress(boxes, {.iou_threshold = 0.45, .max_detections = 4}).size(),
          4u);
    }
  }
}

TEST(Boxes, PlacesInThePicture) {
  models::PreprocessOptions options;
  options.letterbox = true;
  options.resize_to = {16, 16};
  // 32 wide and 16 high: half as large, with 4 rows above it.
  const auto placement = models::PlacementOf({16, 32}, options);
  const Detection box =
      InPicture({.x1 = 2, .y1 = 6, .x2 = 20, .y2 = 15}, placement);
  EXPECT_EQ(box.x1, 4);
  EXPECT_EQ(box.y1, 4);
  EXPECT_EQ(box.x2, 32);  // cut at the edge
  EXPECT_EQ(box.y2, 16);
}

TEST(ClassMask, TheBestClassAndTheLowerOneOfEquals) {
  const float scores[] = {1, 5, 2, 2, 3, 1};  // three classes of two pixels
  const auto mask = BestClasses(scores, 3, {1, 2});
  ASSERT_TRUE(mask.ok());
  EXPECT_THAT(mask->classes, ElementsAre(2, 0));
  const float equal[] = {2, 2, 2, 2};
  EXPECT_THAT(BestClasses(equal, 2, {1, 2})->classes, ElementsAre(0, 0));
  const float none[] = {1, NAN};
  EXPECT_FALSE(BestClasses(none, 2, {1, 1}).ok());
}

TEST(ClassMask, RunsGoColumnByColumnAndBeginWithOthers) {
  const ClassMask mask{.size = {2, 3},
                       .classes = {1, 1, 0,  //
                                   0, 1, 2}};
  const auto runs = RunLengths(mask, 100);
  ASSERT_TRUE(runs.ok());
  EXPECT_THAT(runs->at(1), ElementsAre(0, 1, 1, 2, 2));
  EXPECT_THAT(runs->at(0), ElementsAre(1, 1, 2, 1, 1));
  EXPECT_THAT(runs->at(2), ElementsAre(5, 1));
  EXPECT_EQ(mask.PixelsByClass().at(1), 3);
  const auto refused = RunLengths(mask, 9);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("mask: png"));
}

}  // namespace
}  // namespace millrace::handlers
