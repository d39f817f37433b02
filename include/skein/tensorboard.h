// Figures for TensorBoard: event files that `tensorboard --logdir DIR` opens. No torch here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "skein/record.h"

namespace skein {

// For one worker. Not thread-safe.
class TensorBoardWriter {
 public:
  // Begins an event file of its own in `folder`, which is made where there is none; files of
  // earlier runs stay. TensorBoard drops what they say of steps from `first_step` on, so that a run
  // that was resumed shows once. Throws Error, with path and reason, when it cannot be opened.
  explicit TensorBoardWriter(const std::string& folder, std::int64_t first_step = 0);

  // The other one may only be destroyed or assigned to.
  TensorBoardWriter(TensorBoardWriter&&) noexcept;

  // The same.
  TensorBoardWriter& operator=(TensorBoardWriter&&) noexcept;

  ~TensorBoardWriter();  // what was written is in the file

  // One point of the curve `name`, at the time of now; what is not a number is left out. Error when
  // it cannot be written.
  void scalar(const std::string& name, std::int64_t step, double value);

  // All figures of a record that are known, under the names of its JSON.
  void write(const Record& record);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein
