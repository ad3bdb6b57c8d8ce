// What the server reads of an external handler's messages, and who holds the
// models that it calls.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "handler.pb.h"
#include "handlers/external/calls.h"
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

// As a batcher's job does, it keeps a copy of each ending beyond its call.
class KeepsEndings final : public TensorHandler {
 public:
  void Start(TensorRequest, Done done, std::stop_token) override {
    endings.push_back(done);
    const Done called = done;
    called(TensorResponse());
  }
  Status HasPlace() const override { return OkStatus(); }
  const std::vector<models::TensorSpec>& inputs() const override {
    return none_;
  }
  const std::vector<models::TensorSpec>& outputs() const override {
    return none_;
  }
  std::vector<Done> endings;

 private:
  const std::vector<models::TensorSpec> none_;
};

class OneModel final : public ModelLender {
 public:
  StatusOr<LentModel> Lend(const std::string&, const std::string&,
                           const std::string&) override {
    return LentModel{.handler = &model, .hold = hold};
  }
  void Forget(const std::string&) override {}

  KeepsEndings model;
  const std::shared_ptr<const int> hold = std::make_shared<const int>(1);
};

// Else the last copy, on the called model's own thread, could unload it.
TEST(ModelCalls, ACalledModelIsLetGoOfByWhoTakesTheResult) {
  OneModel lender;
  ModelCalls calls("caller", &lender);
  Message call;
  call.set_kind(Message::CALL);
  call.set_id(1);
  call.set_model("model");
  ASSERT_TRUE(calls.Start(call, kNever).ok());
  EXPECT_EQ(lender.model.endings.size(), 1U);
  EXPECT_EQ(lender.hold.use_count(), 2);  // with the result
  EXPECT_EQ(calls.TakeResults().size(), 1U);
  EXPECT_EQ(lender.hold.use_count(), 1);
}

}  // namespace
}  // namespace millrace::handlers
