// Whether a run that has failed is worth another try.
#pragma once

#include <cstdint>
#include <string>

namespace skein {

class RestartJudge {
 public:
  // Of a run that may be started anew `most` times and begins at `samples`.
  RestartJudge(int most, std::int64_t samples) : most_(most), best_(samples) {}

  // The run failed when `samples` were done; `saved`: it has saved something since it was started
  // last. Returns why it is not to be started anew, as when two tries in a row have gained nothing:
  // no checkpoint, and no sample beyond those that an earlier one had done. Empty: it is to be, and
  // that is counted.
  std::string why_not(std::int64_t samples, bool saved);

  int restarts() const { return restarts_; }
  bool stuck() const { return stuck_ > 0; }  // the last try gained nothing

 private:
  int most_, restarts_ = 0, stuck_ = 0;
  std::int64_t best_;
};

}  // namespace skein
