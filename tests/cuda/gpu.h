// Tests that need a GPU are skipped, with the reason, where there is none.
#pragma once

#include <gtest/gtest.h>

#include "cuda/cuda.h"

namespace skein {

class OnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    queue_ = make_cuda_queue(0);
  }
  Queue& queue() { return *queue_; }

 private:
  std::unique_ptr<Queue> queue_;
};

}  // namespace skein
