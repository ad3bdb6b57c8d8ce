#include "models/text/sentence_files.h"

#include <gtest/gtest.h>

namespace millrace::models {
namespace {

TEST(SentenceFiles, OneWayOfPoolingIsChosen) {
  const auto mode = [](const char* json) {
    const StatusOr<std::string> read = ReadPoolingMode(json);
    return read.ok() ? *read : read.status().ToString().substr(0, 16);
  };
  EXPECT_EQ(mode(R"({"pooling_mode_cls_token": true})"), "cls");
  EXPECT_EQ(mode(R"({"pooling_mode_max_tokens": true})"), "max");
  EXPECT_EQ(mode(R"({"pooling_mode_mean_tokens": true,
                     "pooling_mode_cls_token": false})"),
            "mean");
  EXPECT_EQ(mode(R"({"pooling_mode_lasttoken": true})"), "last");
  for (
      const char* none :
      {"{}", "[]", "true", R"({"pooling_mode_weightedmean_tokens": true})",
       R"({"pooling_mode_cls_token": 1})",
       R"({"pooling_mode_cls_token": true, "pooling_mode_lasttoken": true})"}) {
    EXPECT_EQ(mode(none), "UNIMPLEMENTED: i") << none;
  }
  EXPECT_EQ(mode("{"), "INVALID_ARGUMENT");
}

TEST(SentenceFiles, VectorsAreNormalisedByAStepOfTheirOwn) {
  const auto normalizes = [](const char* json) { return ReadNormalizes(json); };
  EXPECT_TRUE(*normalizes(
      R"([{"type": "sentence_transformers.models.Transformer"},
          {"type": "sentence_transformers.models.Normalize"}])"));
  EXPECT_FALSE(*normalizes(R"([{"type": "a.Pooling"}, 3, {"type": 4}, {}])"));
  EXPECT_TRUE(*normalizes("{}"));
  EXPECT_EQ(normalizes(R"([{"type": "a.Normalize"}, {"type": "a.Dense"}])")
                .status()
                .code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(normalizes("[").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::models
