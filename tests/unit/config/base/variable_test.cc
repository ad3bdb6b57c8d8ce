#include "config/base/variable.h"

#include <gtest/gtest.h>

#include "config/base/module_places.h"

namespace millrace {
namespace {

class VariableTest : public testing::Test {
 protected:
  static constexpr const char* kName = "MILLRACE_VARIABLE_TEST";
  ~VariableTest() override { unsetenv(kName); }
};

TEST_F(VariableTest, AnEmptyOneIsNotSet) {
  EXPECT_EQ(Variable(kName), nullptr);
  EXPECT_EQ(VariableOr(kName, "8000"), "8000");
  setenv(kName, "", 1);
  EXPECT_EQ(Variable(kName), nullptr);
  EXPECT_EQ(VariableOr(kName, "8000"), "8000");
  setenv(kName, "9", 1);
  EXPECT_STREQ(Variable(kName), "9");
  EXPECT_EQ(VariableOr(kName, "8000"), "9");
}

TEST_F(VariableTest, AnEmptyOneNamesNoModule) {
  const auto places = ModulePlaces(kName, "m.so");
  ASSERT_EQ(places.size(), 2u);
  setenv(kName, "", 1);
  EXPECT_EQ(ModulePlaces(kName, "m.so"), places);
  setenv(kName, "/a/m.so", 1);
  EXPECT_EQ(ModulePlaces(kName, "m.so"), std::vector<std::string>{"/a/m.so"});
}

}  // namespace
}  // namespace millrace
