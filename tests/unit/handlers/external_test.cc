// What the server reads of an external handler's messages.
#include <gtest/gtest.h>

#include <string>

#include "handler.pb.h"
#include "handlers/external/frames.h"

namespace millrace::handlers {
namespace {

using handler::Message;

std::string FrameOf(const Message& message) {
  const auto frame = Framed(message);
  EXPECT_TRUE(frame.ok()) << frame.status().ToString();
  return frame.ok() ? *frame : std::string();
}

TEST(FrameReader, TextsThatAreNoUtf8AreReplacedAndTheMessageIsRead) {
  Message sent;
  sent.set_kind(Message::RESPONSE);
  sent.set_error("unknown a\xfe");
  sent.set_model("\xff");
  sent.set_version("\xc3");
  sent.add_outputs("b\xff");
  sent.add_inputs()->set_name("c\xff");
  handler::Tensor& tensor = *sent.add_tensors();
  tensor.set_name("\xc3\xbc \xc3");
  tensor.set_datatype("UINT8");
  tensor.add_shape(1);
  tensor.set_data("\xff");
  FrameReader reader;
  reader.Add(FrameOf(sent));
  Message got;
  const auto complete = reader.Next(&got);
  ASSERT_TRUE(complete.ok()) << complete.status().ToString();
  ASSERT_TRUE(*complete);
  EXPECT_EQ(got.error(), "unknown a\xef\xbf\xbd");
  EXPECT_EQ(got.model(), "\xef\xbf\xbd");
  EXPECT_EQ(got.version(), "\xef\xbf\xbd");
  EXPECT_EQ(got.outputs(0), "b\xef\xbf\xbd");
  EXPECT_EQ(got.inputs(0).name(), "c\xef\xbf\xbd");
  const auto read = TensorFrom(got.tensors(0), {}, 0);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->name, "\xc3\xbc \xef\xbf\xbd");
  EXPECT_EQ(*read->tensor.data<uint8_t>(), 255);
}

}  // namespace
}  // namespace millrace::handlers
