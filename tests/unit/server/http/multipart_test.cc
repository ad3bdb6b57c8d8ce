#include "server/http/multipart.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::server::http {
namespace {

constexpr const char* kType = "multipart/form-data; boundary=XX";

std::string Part(const std::string& disposition, const std::string& data) {
  return "--XX\r\nContent-Disposition: " + disposition + "\r\n\r\n" + data +
         "\r\n";
}

TEST(Multipart, PartsAreReadWithTheirNames) {
  const std::string body =
      Part("form-data; name=\"purpose\"", "batch") +
      "--XX\r\ncontent-type: text/plain\r\n"
      "CONTENT-DISPOSITION: Form-Data; filename=\"a \\\"b\\\".jsonl\"; "
      "name=file\r\n\r\n{}\r\n--X\r\n\r\n--XX--\r\n";
  const auto parts = ParseFormData(
      "Multipart/Form-Data; charset=utf-8; Boundary=\"XX\"", body);
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ(FindPart(*parts, "purpose")->data, "batch");
  EXPECT_EQ(FindPart(*parts, "file")->filename, "a \"b\".jsonl");
  EXPECT_EQ(FindPart(*parts, "file")->data, "{}\r\n--X\r\n");
  EXPECT_EQ(FindPart(*parts, "other"), nullptr);
  EXPECT_TRUE(ParseFormData(kType, "--XX--")->empty());
  EXPECT_EQ(ParseFormData(kType, Part("form-data; name=\"e\"", "") + "--XX--")
                ->at(0)
                .data,
            "");
}

TEST(Multipart, AnotherTypeIsUnsupported) {
  for (const char* type : {"", "application/json", "multipart/mixed"}) {
    EXPECT_EQ(ParseFormData(type, "--XX--").status().reason(),
              "unsupported_media_type");
  }
}

TEST(Multipart, FormsOfTorchServeMayLackNamesAndHaveTextAroundThem) {
  const std::string body =
      "before\r\n--XX\r\n\r\nno header\r\n"
      "--XX\r\nContent-Type: Image/PNG; q=1\r\n\r\nno name\r\n" +
      Part("attachment; name=\"a\"\r\nContent-Transfer-Encoding: base64", "x") +
      "--XX--\r\nbehind";
  EXPECT_FALSE(ParseFormData(kType, body).ok());
  const auto parts =
      ParseFormData(kType, body, {.max_parts = 3, .strict = false});
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ(parts->at(0).data, "no header");
  EXPECT_EQ(parts->at(1).content_type, "image/png");
  EXPECT_EQ(parts->at(1).data, "no name");
  EXPECT_EQ(parts->at(2).name, "a");
  EXPECT_FALSE(
      ParseFormData(kType, body, {.max_parts = 2, .strict = false}).ok());
  EXPECT_FALSE(ParseFormData(kType, "no boundary", {.strict = false}).ok());
}

TEST(Multipart, WhatIsMalformedIsRefused) {
  const std::string good = Part("form-data; name=\"a\"", "x");
  std::string many;
  for (size_t i = 0; i <= kMostFormParts; ++i) many += good;
  const std::string bad[] = {
      "",
      "XX",
      good,                        // no end
      "before" + good + "--XX--",  //
      good + "--XX--\r\nbehind",   //
      good + "--XX-",              //
      good + "--XX\n\n--XX--",     //
      "--XX\r\n\r\n\r\n--XX--",    // no header
      "--XX\r\nnothing\r\n\r\nx\r\n--XX--",
      Part("attachment; name=\"a\"", "x") + "--XX--",
      Part("form-data", "x") + "--XX--",
      Part("form-data; name=\"a", "x") + "--XX--",
      Part("form-data; name=\"a\" b", "x") + "--XX--",
      Part("form-data; name", "x") + "--XX--",
      Part("form-data; name=\"" + std::string(2000, 'n') + "\"", "x") +
          "--XX--",
      Part("form-data; name=\"a\"\r\nX: " + std::string(5000, 'h'), "x") +
          "--XX--",
      Part("form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64", "x") +
          "--XX--",
      many + "--XX--",
  };
  for (const std::string& body : bad) {
    const auto parts = ParseFormData(kType, body);
    EXPECT_EQ(parts.status().reason(), "malformed_multipart") << body;
  }
  for (const char* type :
       {"multipart/form-data",
        "multipart/form-data; boundary=", "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a\tb\"",
        "multipart/form-data; boundary=12345678901234567890123456789012345678"
        "901234567890123456789012345678901"}) {
    EXPECT_EQ(ParseFormData(type, "--XX--").status().reason(),
              "malformed_multipart")
        << type;
  }
}

}  // namespace
}  // namespace millrace::server::http
