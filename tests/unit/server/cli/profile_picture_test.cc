// Pictures of small profiles.
#include "server/cli/profile_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace millrace::server {
namespace {

using ::testing::HasSubstr;

// A diamond whose left side has one step more: 0 → 1 → 2 → 4, 0 → 3 → 4, and
// 0 → 4 past all of them.
Profile Diamond() {
  Profile profile;
  const auto add = [&](const std::string& name, std::vector<int32_t> sources) {
    profile.steps.push_back(
        {{.text = "Op <" + name + ">", .name = name, .sources = sources}, 1});
  };
  add("top", {});
  add("left", {0});
  add("lower", {1});
  add("right", {0});
  add("end & all", {0, 2, 3});
  profile.run_ms = 5;
  return profile;
}

struct Box {
  double x, y, width, height;
};
std::vector<Box> BoxesOf(const std::string& svg) {
  std::vector<Box> boxes;
  for (size_t at = 0; (at = svg.find("<rect x=", at)) != svg.npos; ++at) {
    Box box{};
    EXPECT_EQ(4, std::sscanf(svg.c_str() + at,
                             "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" "
                             "height=\"%lf\"",
                             &box.x, &box.y, &box.width, &box.height));
    boxes.push_back(box);
  }
  return boxes;
}
size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
  return count;
}

TEST(ProfilePicture, DotHasABoxForEachStepAndItsEdges) {
  Profile profile = Diamond();
  profile.steps[0].info = {.text = "Linear \"a\""};
  const std::string dot = PictureDot(profile);
  EXPECT_THAT(dot, HasSubstr("s0 [label=\"Linear \\\"a\\\"\\n1.000 ms\""));
  EXPECT_THAT(dot, HasSubstr("s1 [label=\"Op <left>\\nleft\\n1.000 ms\""));
  EXPECT_THAT(dot, HasSubstr("s0 ->  s1;"));
}

TEST(ProfilePicture, BoxesStandBelowWhatTheyReadAndBesideEachOther) {
  const std::vector<Box> boxes = BoxesOf(PictureSvg(Diamond()));
  ASSERT_EQ(boxes.size(), 5);
  EXPECT_LT(boxes[0].y, boxes[1].y);
  EXPECT_LT(boxes[1].y, boxes[2].y);
  EXPECT_LT(boxes[2].y, boxes[4].y);
  EXPECT_EQ(boxes[1].y, boxes[3].y);
  for (size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_GE(boxes[i].x, 0);
    for (size_t j = 0; j < i; ++j) {
      const bool apart = boxes[i].x + boxes[i].width <= boxes[j].x ||
                         boxes[j].x + boxes[j].width <= boxes[i].x ||
                         boxes[i].y != boxes[j].y;
      EXPECT_TRUE(apart) << i << " over " << j;
    }
  }
}

TEST(ProfilePicture, EdgesGoRoundTheBoxesOfLayersThatTheyPass) {
  const std::string svg = PictureSvg(Diamond());
  // 0 → 1, 1 → 2, 2 → 4, 0 → 3; 0 → 4 in three parts and 3 → 4 in two.
  EXPECT_EQ(Count(svg, "<path "), 4 + 3 + 2);
  EXPECT_EQ(Count(svg, " V"), 3);
}

TEST(ProfilePicture, EdgesOfOneStepShareTheirWay) {
  Profile profile = Diamond();
  profile.steps.push_back({{.text = "last", .sources = {0, 4}}, 1});
  const std::string svg = PictureSvg(profile);
  // What 0 → 5 adds: one bend beside step 4, and the part from there; 4 → 5.
  EXPECT_EQ(Count(svg, "<path "), 9 + 3);
  EXPECT_EQ(Count(svg, " V"), 4);
}

TEST(ProfilePicture, NamesAreNoMarkup) {
  const std::string svg = PictureSvg(Diamond());
  EXPECT_THAT(svg, HasSubstr("end &amp; all"));
  EXPECT_THAT(svg, HasSubstr("Op &lt;top&gt;"));
  EXPECT_THAT(svg, HasSubstr("1.000 ms, 20.0%"));
}

TEST(ProfilePicture, AGraphWithoutStepsIsAnEmptyPicture) {
  EXPECT_THAT(PictureSvg({}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace millrace::server
