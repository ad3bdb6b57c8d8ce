#include "config/base/nearest.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

const std::vector<std::string_view> kNames = {"http_port", "grpc_port", "host",
                                              "threads",   "isa",       "np"};

TEST(Nearest, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(Nearest("htpt_port", kNames), "http_port");
  EXPECT_EQ(Nearest("gprc_port", kNames), "grpc_port");
  EXPECT_EQ(Nearest("hosts", kNames), "host");
  EXPECT_EQ(Nearest("thread", kNames), "threads");
  EXPECT_EQ(Nearest("http-prot", kNames), "http_port");
  EXPECT_EQ(Nearest("ias", kNames), "isa");
}

TEST(Nearest, ABeginningOfWholeWordsIsNear) {
  const std::vector<std::string_view> names = {
      "tensor_parallel_size_of_all", "tensor_parallel_size", "max_num_seqs"};
  EXPECT_EQ(Nearest("tensor-parallel", names), "tensor_parallel_size");
  EXPECT_EQ(Nearest("tensor", names), "tensor_parallel_size");
  EXPECT_EQ(Nearest("tensor_para", names), "") << "in the middle of a word";
  EXPECT_EQ(Nearest("max", names), "") << "too short to tell";
}

TEST(Nearest, WhatIsFarIsNotSuggested) {
  for (const char* name : {"", "x", "nq", "foo", "lora", "port", "model",
                           "tensor_parallel_size", "pt_port_number"}) {
    EXPECT_EQ(Nearest(name, kNames), "") << name;
  }
  EXPECT_EQ(Nearest("host", {}), "");
}

}  // namespace
}  // namespace millrace
