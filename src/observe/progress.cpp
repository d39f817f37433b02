#include "skein/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/clock.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRedraw = 100ms;
constexpr Duration kPlainLine = 5s;

std::string remaining(double seconds) {
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// At most 1: workers at their own pace end a few samples beyond the total.
double part_done(const ProgressFigures& figures) {
  return std::clamp(static_cast<double>(figures.samples) /
                        static_cast<double>(std::max<std::int64_t>(1, figures.total)),
                    0.0, 1.0);
}

std::size_t columns(std::FILE* out) {
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

Duration now_on(const Clock& clock) { return clock.now().time_since_epoch(); }

}  // namespace

ProgressBar::ProgressBar(std::int64_t total_samples, bool shown, std::FILE* out)
    : clock_(std::make_shared<SteadyClock>()),
      out_(out),
      quiet_(!shown),
      terminal_(::isatty(::fileno(out)) == 1),
      log_every_(0) {
  last_figures_.total = total_samples;
  last_figures_.loss = Record::kUnknown;
}

ProgressBar::ProgressBar(const Clock& clock, std::FILE* out, bool quiet, std::int64_t log_every)
    : clock_(std::shared_ptr<void>(), &clock),
      out_(out),
      quiet_(quiet),
      terminal_(::isatty(::fileno(out)) == 1),
      log_every_(log_every) {}

std::string ProgressBar::line(const ProgressFigures& figures, double rate) const {
  std::string text =
      fmt::format("{:>5.1f} %  {}/{} samples  step {}  {:.0f} samples/s", 100 * part_done(figures),
                  figures.samples, figures.total, figures.steps, rate);
  if (!std::isnan(figures.loss)) text += fmt::format("  loss {:.4f}", figures.loss);
  text += fmt::format("  lr {:.3g}", figures.learning_rate);
  if (figures.accuracy >= 0) text += fmt::format("  accuracy {:.2f} %", 100 * figures.accuracy);
  return text;
}

std::string ProgressBar::bar(const ProgressFigures& figures, double rate) const {
  constexpr std::size_t kWidth = 24;
  const double part = part_done(figures);
  const auto filled = static_cast<std::size_t>(part * kWidth);
  std::string text = "[";
  for (std::size_t i = 0; i < kWidth; ++i) text += i < filled ? "=" : i == filled ? ">" : " ";
  text += fmt::format("] {:>3.0f} %  {:.0f} samples/s", 100 * part, rate);
  if (!std::isnan(figures.loss)) text += fmt::format("  loss {:.3f}", figures.loss);
  if (figures.accuracy >= 0) text += fmt::format("  acc {:.2f} %", 100 * figures.accuracy);
  if (rate > 0 && part < 1)
    text += "  " + remaining(static_cast<double>(figures.total - figures.samples) / rate) + " left";
  return text.substr(0, columns(out_) - 1);
}

void ProgressBar::update(const Record& record) {
  constexpr double kNew = 0.1;
  double loss = last_figures_.loss;
  if (std::isnan(loss)) loss = record.loss;
  if (!std::isnan(record.loss)) loss += kNew * (record.loss - loss);
  last_figures_ = {record.samples, last_figures_.total,  record.step,
                   loss,           record.learning_rate, last_figures_.accuracy};
  update(last_figures_);
}

void ProgressBar::update(const ProgressFigures& figures) {
  if (quiet_) return;
  const Duration now = now_on(*clock_);
  if (first_samples_ < 0) {
    first_samples_ = figures.samples;
    started_ = now;
    last_ = now;
    if (terminal_ || log_every_ != 1) return;
  }
  const bool due = terminal_        ? now - last_ >= kRedraw
                   : log_every_ > 0 ? figures.steps % log_every_ == 0
                                    : now - last_ >= kPlainLine;
  if (due) show(figures);
}

void ProgressBar::show(const ProgressFigures& figures) {
  last_ = now_on(*clock_);
  const double elapsed = seconds(last_ - started_);
  const double rate =
      elapsed > 0 ? static_cast<double>(figures.samples - first_samples_) / elapsed : 0;
  if (terminal_) {
    fmt::print(out_, "\r\x1b[2K{}", bar(figures, rate));
    drawn_ = true;
  } else {
    fmt::print(out_, "{}\n", line(figures, rate));
  }
  std::fflush(out_);
}

void ProgressBar::clear() {
  if (drawn_) fmt::print(out_, "\r\x1b[2K");
  drawn_ = false;
}

void ProgressBar::say(const std::string& text) {
  if (quiet_) return;
  clear();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
}

void ProgressBar::finish(const ProgressFigures& figures) {
  if (quiet_) return;
  if (first_samples_ >= 0) show(figures);
  if (drawn_) fmt::print(out_, "\n");
  drawn_ = false;
  std::fflush(out_);
}

}  // namespace skein
