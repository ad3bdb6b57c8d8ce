#include "server/http/content_coding.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::server::http {
namespace {

constexpr int64_t kLimit = 1 << 20;

TEST(ContentCoding, WhatWasEncodedIsDecoded) {
  for (const auto coding : {ContentCoding::kIdentity, ContentCoding::kGzip,
                            ContentCoding::kDeflate}) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{300'000}}) {
      std::string text(size, 'a');
      for (size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i);
      const auto decoded = Decoded(*Encoded(text, coding), coding, kLimit);
      ASSERT_TRUE(decoded.ok()) << decoded.status().message();
      EXPECT_EQ(*decoded, text);
    }
  }
  EXPECT_LT(Encoded(std::string(1000, 'a'), ContentCoding::kGzip)->size(),
            100u);
}

TEST(ContentCoding, ABodyIsWholeAndNothingElse) {
  const std::string whole = *Encoded("hello", ContentCoding::kGzip);
  for (const std::string& bytes :
       {whole.substr(0, whole.size() - 1), whole + "x", std::string("hello"),
        std::string()}) {
    const auto decoded = Decoded(bytes, ContentCoding::kGzip, kLimit);
    EXPECT_EQ(decoded.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(Decoded(whole, ContentCoding::kDeflate, kLimit).ok());
}

TEST(ContentCoding, ABombStopsAtTheLimit) {
  const std::string bomb =
      *Encoded(std::string(100 << 20, '\0'), ContentCoding::kDeflate);
  const auto decoded = Decoded(bomb, ContentCoding::kDeflate, kLimit);
  EXPECT_EQ(decoded.status().reason(), "payload_too_large");
  const std::string fits =
      *Encoded(std::string(kLimit, 'x'), ContentCoding::kGzip);
  EXPECT_TRUE(Decoded(fits, ContentCoding::kGzip, kLimit).ok());
  EXPECT_FALSE(Decoded(fits, ContentCoding::kGzip, kLimit - 1).ok());
}

TEST(ContentCoding, HeadersAreReadInAnyCase) {
  EXPECT_EQ(*ReadContentCoding(""), ContentCoding::kIdentity);
  EXPECT_EQ(*ReadContentCoding(" GZip "), ContentCoding::kGzip);
  EXPECT_EQ(*ReadContentCoding("deflate"), ContentCoding::kDeflate);
  EXPECT_EQ(ReadContentCoding("br").status().reason(),
            "unsupported_media_type");
}

TEST(ContentCoding, TheClientsFavouriteIsChosen) {
  EXPECT_EQ(ChooseContentCoding(""), ContentCoding::kIdentity);
  EXPECT_EQ(ChooseContentCoding("br, identity"), ContentCoding::kIdentity);
  EXPECT_EQ(ChooseContentCoding("gzip, deflate"), ContentCoding::kGzip);
  EXPECT_EQ(ChooseContentCoding("gzip;q=0.5, deflate;q=0.8"),
            ContentCoding::kDeflate);
  EXPECT_EQ(ChooseContentCoding("gzip; q=0"), ContentCoding::kIdentity);
}

}  // namespace
}  // namespace millrace::server::http
