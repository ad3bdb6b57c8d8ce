#include "handlers/external/http_hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace::handlers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(HttpHints, ReadsStatusAndHeadersOfItsOwn) {
  TaskResponse response;
  ASSERT_TRUE(ReadHttpHints(R"({"status": 422, "headers": {"X-Model": "b",
      "Content-Length": "1", "TRANSFER-ENCODING": "chunked", "x-empty": ""}})",
                            response)
                  .ok());
  EXPECT_EQ(response.http_status, 422);
  EXPECT_THAT(response.http_headers,
              ElementsAre(Pair("X-Model", "b"), Pair("x-empty", "")));
  TaskResponse plain;
  ASSERT_TRUE(ReadHttpHints("{}", plain).ok());
  EXPECT_EQ(plain.http_status, 200);
  EXPECT_TRUE(plain.http_headers.empty());
}

TEST(HttpHints, WhatHttpDoesNotHaveIsTheHandlersError) {
  std::string many = R"({"headers": {)";
  for (int i = 0; i < 33; ++i) {
    many += (i > 0 ? ", \"X" : "\"X") + std::to_string(i) + "\": \"\"";
  }
  for (const std::string& json : {
           std::string("[]"),
           std::string("{"),
           std::string("\xff"),
           std::string(R"({"status": 199})"),
           std::string(R"({"status": 600})"),
           std::string(R"({"status": "200"})"),
           std::string(R"({"status": 200.5})"),
           std::string(R"({"headers": []})"),
           many + "}}",
           std::string(R"({"headers": {"": "a"}})"),
           std::string(R"({"headers": {"a b": "c"}})"),
           std::string(R"({"headers": {"a": 1}})"),
           std::string(R"({"headers": {"a": "b\r\nc: d"}})"),
           std::string(R"({"headers": {"a": "\u0000"}})"),
           R"({"headers": {"a": ")" + std::string(4097, 'b') + R"("}})",
       }) {
    TaskResponse response;
    const Status status = ReadHttpHints(json, response);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << json;
    EXPECT_EQ(status.reason(), "handler_error") << json;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the handler answered with"));
  }
}

TEST(HttpHints, AContentTypeIsOneLineOfPrintableAscii) {
  for (const std::string& type :
       {std::string("image/png"), std::string("text/plain; charset=\"utf-8\""),
        "a/" + std::string(253, 'b')}) {
    EXPECT_TRUE(CheckContentType(type).ok()) << type;
  }
  for (const std::string& type :
       {std::string("text/plain\r\nSet-Cookie: a=b"), std::string("text/a\n"),
        std::string("text/a\tb"), std::string("text/a\0b", 8),
        std::string("text/\xc3\xbc"), std::string("text/\x7f"),
        "a/" + std::string(254, 'b')}) {
    const Status status = CheckContentType(type);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << type;
    EXPECT_EQ(status.reason(), "handler_error") << type;
  }
}

}  // namespace
}  // namespace millrace::handlers
