#include "server/http/oip_plain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/tensor/travel_bytes.h"

namespace millrace::server::http {
namespace {

const std::string kTail(16, 'a');

// What the reader of all forms makes of it; a key without a meaning makes the
// plain one decline.
InferBody Slow(const std::string& json, const std::string& tail) {
  const std::string text = R"({"-":1,)" + json.substr(json.find('{') + 1);
  EXPECT_FALSE(ReadPlainInfer(text, tail).has_value());
  auto body = ReadInferBody(text + tail, text.size(), SharedRegions(false, 0));
  EXPECT_TRUE(body.ok()) << body.status().ToString();
  return body.ok() ? *std::move(body) : InferBody();
}

void ExpectSame(const std::string& json, const std::string& tail = kTail) {
  SCOPED_TRACE(json);
  const auto plain = ReadPlainInfer(json, tail);
  ASSERT_TRUE(plain.has_value());
  const InferBody slow = Slow(json, tail);
  EXPECT_EQ(plain->id, slow.id);
  EXPECT_EQ(plain->binary, slow.binary);
  EXPECT_EQ(plain->request.outputs, slow.request.outputs);
  ASSERT_EQ(plain->forms.size(), slow.forms.size());
  for (const auto& [name, form] : slow.forms) {
    EXPECT_EQ(plain->forms.at(name).binary, form.binary);
  }
  ASSERT_EQ(plain->request.inputs.size(), slow.request.inputs.size());
  for (size_t i = 0; i < slow.request.inputs.size(); ++i) {
    const auto& a = plain->request.inputs[i];
    const auto& b = slow.request.inputs[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.tensor.dtype(), b.tensor.dtype());
    EXPECT_EQ(a.tensor.shape(), b.tensor.shape());
    EXPECT_EQ(models::TravelBytes(a.tensor).view(),
              models::TravelBytes(b.tensor).view());
  }
}

constexpr char kInput[] = R"({"name":"x","datatype":"FP32","shape":[2,2],)"
                          R"("parameters":{"binary_data_size":16}})";

std::string With(const std::string& more) {
  return "{\"inputs\":[" + std::string(kInput) + "]" + more + "}";
}

TEST(PlainInfer, ReadsAsTheReaderOfAllForms) {
  ExpectSame(With(""));
  ExpectSame(With(R"(,"parameters":{"binary_data_output":true},"id":"7")"));
  ExpectSame(
      With(R"(,"outputs":[{"name":"y","parameters":{"binary_data":false}},)"
           R"({"name":"z"}],"parameters":{"binary_data_output":true})"));
  ExpectSame(
      " { \"id\" : \"\",\n\"inputs\" : [ { \"shape\" : [ 4 ] , "
      "\"parameters\" : { \"binary_data_size\" : 8 }, \"datatype\" : "
      "\"INT16\", \"name\" : \"a\" }, {\"name\":\"b\",\"shape\":[],"
      "\"parameters\":{\"binary_data_size\":8},\"datatype\":\"FP64\"} ] } ");
  ExpectSame(R"({"inputs":[]})", "");
  ExpectSame(With(",\"id\":\"\xc3\xa4\""));
}

// Sanitizers see a read beyond the text, which ends where its memory ends.
TEST(PlainInfer, ReadsNothingBehindTheText) {
  const std::string text = With("");
  const std::vector<char> exact(text.begin(), text.end());
  EXPECT_TRUE(ReadPlainInfer({exact.data(), exact.size()}, kTail).has_value());
}

TEST(PlainInfer, LongTextsAreForTheReaderOfAllForms) {
  const std::string text = With("");
  ExpectSame(text + std::string(8192 - text.size(), ' '));
  const std::string longer = text + std::string(8193 - text.size(), ' ');
  EXPECT_FALSE(ReadPlainInfer(longer, kTail).has_value());
}

TEST(PlainInfer, DeclinesAllElse) {
  for (const std::string& json :
       {std::string(R"({"inputs":[{"name":"x","datatype":"FP32",)"
                    R"("shape":[1],"data":[1]}]})"),
        With(R"(,"other":1)"),
        With(R"(,"id":7)"),
        With(R"(,"id":"a\n")"),
        With(R"(,"id":"\ud800")"),
        With(R"(,"id":"\udc00")"),
        With(",\"id\":\"\xc3\""),
        With(",\"id\":\"\xed\xa0\x80\""),
        With(",\"id\":\"a\nb\""),
        With(R"(,"id":"a","id":"b")"),
        With(R"(,"parameters":{"binary_data_output":1})"),
        With(R"(,"parameters":{"binary_data_output":true,)"
             R"("binary_data_output":true})"),
        With(R"(,"outputs":[{"name":"y","name":"z"}])"),
        With(R"(,"outputs":[{"name":""}])"),
        With(R"(,"outputs":{})"),
        With(",\"id\":" + std::string(64, '[')),
        With(R"(,"inputs":[])"),
        With(","),
        With("") + "}",
        With("") + std::string(1, 0),
        std::string(R"({"inputs":[{"datatype":"FP32",)"
                    R"("shape":[4],"parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32",)"
                    R"("parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[4],)"
                    R"("shape":[4],"parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[4],)"
                    R"("parameters":{"binary_data_size":-16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32","shape":)"
                    R"([1,1,1,1,1,1,1,1,4],)"
                    R"("parameters":{"binary_data_size":16}}]})"),
        With(R"(,"parameters":{"priority":1})"),
        With(R"(,"outputs":[{"name":"y","parameters":{"classification":2}}])"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32",)"
                    R"("shape":[-4],"parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32",)"
                    R"("shape":[04],"parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32",)"
                    R"("shape":[4.0],"parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP32","shape":)"
                    R"([9999999999999999999],)"
                    R"("parameters":{"binary_data_size":16}}]})"),
        std::string(R"({"inputs":[{"name":"x","datatype":"FP31",)"
                    R"("shape":[4],"parameters":{"binary_data_size":16}}]})"),
        std::string("{}"),
        std::string("{"),
        std::string("")}) {
    EXPECT_FALSE(ReadPlainInfer(json, kTail).has_value()) << json;
  }
  EXPECT_FALSE(ReadPlainInfer(With(""), kTail + "more").has_value());
  EXPECT_FALSE(ReadPlainInfer(With(""), "few").has_value());
}

}  // namespace
}  // namespace millrace::server::http
