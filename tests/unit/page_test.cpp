// What the live page reads of a run's folder, and to whom it shows it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "multiproc/process.h"
#include "observe/timeline_file.h"
#include "page/address.h"
#include "page/assets.h"
#include "page/downsampled.h"
#include "page/tail.h"
#include "page/watched_run.h"
#include "skein/error.h"
#include "skein/metrics_file.h"
#include "skein/record.h"

namespace skein {
namespace {

using Json = nlohmann::json;
using testing::Folder;

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

std::vector<std::string> lines_of(Tail& tail) {
  std::vector<std::string> lines;
  tail.read([&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

std::string step_line(int step, double loss) {
  return Json{{"kind", "step"},        {"step", step},        {"samples", 10 * step},
              {"seconds", 0.5 * step}, {"loss", loss},        {"learning_rate", 0.1},
              {"iteration_ms", 500},   {"exposed_comm_ms", 3}}
             .dump() +
         "\n";
}

std::string run_line(int step) {
  return Json{{"kind", "run"},      {"step", step}, {"samples", 10 * step},
              {"strategy", "dear"}, {"workers", 4}, {"started", "2026-01-02 03:04:05 UTC"},
              {"budget", 1000}}
             .dump() +
         "\n";
}

TEST(PageTail, ALineWithoutItsEndWaitsForIt) {
  const Folder folder;
  Tail tail(folder / "x");
  EXPECT_TRUE(lines_of(tail).empty()) << "there is no file yet";
  append(folder / "x", "one\ntw");
  EXPECT_EQ(lines_of(tail), std::vector<std::string>{"one"});
  EXPECT_TRUE(lines_of(tail).empty());
  append(folder / "x", "o\n\nthree");
  EXPECT_EQ(lines_of(tail), std::vector<std::string>{"two"});
  EXPECT_EQ(tail.behind(), 5);
}

TEST(PageTail, AFileThatIsAnotherOrWasCutIsReadFromItsBeginning) {
  const Folder folder;
  Tail tail(folder / "x");
  append(folder / "x", "one\ntwo\n");
  lines_of(tail);
  std::ofstream(folder / "y") << "a longer file than before\n";
  std::filesystem::rename(folder / "y", folder / "x");
  bool anew =
      tail.read([](std::string_view line) { EXPECT_EQ(line, "a longer file than before"); });
  EXPECT_TRUE(anew);
  std::filesystem::resize_file(folder / "x", 2);
  append(folder / "x", "!\n");
  anew = tail.read([](std::string_view line) { EXPECT_EQ(line, "a !"); });
  EXPECT_TRUE(anew);
}

TEST(PageTail, LinesLongerThanAPieceAndFilesLongerThanTheLimitComeWhole) {
  const Folder folder;
  const std::string longest(3'000'000, 'x');
  append(folder / "x", longest + "\nlast\n");
  Tail tail(folder / "x");
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  for (int i = 0; i < 4; ++i) tail.read(take, 1000);
  EXPECT_EQ(lines, (std::vector<std::string>{longest, "last"}));
}

TEST(Downsampled, AMillionRowsAreFewAndNoneIsForgotten) {
  using Kind = Downsampled::Kind;
  Downsampled series(
      {{"last", Kind::last}, {"mean", Kind::mean}, {"sum", Kind::sum}, {"most", Kind::most}}, 1000);
  constexpr int kRows = 1'000'003;
  for (int i = 1; i <= kRows; ++i) series.add({double(i), double(i), 1, i == 12345 ? 9.0 : 1.0});
  ASSERT_LE(series.rows().size(), 1000u);
  ASSERT_GE(series.rows().size(), 400u);
  double sum = 0, most = 0, before = 0;
  for (const auto& row : series.rows()) {
    EXPECT_NEAR(row[1], (before + 1 + row[0]) / 2, 1e-6 * row[0]);
    before = row[0];
    sum += row[2];
    most = std::max(most, row[3]);
  }
  EXPECT_EQ(before, kRows);
  EXPECT_EQ(sum, kRows);
  EXPECT_EQ(most, 9);
}

TEST(Downsampled, WhatIsNotKnownIsNoZero) {
  using Kind = Downsampled::Kind;
  Downsampled series({{"last", Kind::last}, {"mean", Kind::mean}}, 2);
  for (int i = 0; i < 4; ++i) series.add({double(i), i == 1 ? 7.0 : NAN});
  ASSERT_EQ(series.rows().size(), 2u);
  EXPECT_EQ(series.rows()[0][1], 7);
  EXPECT_TRUE(std::isnan(series.rows()[1][1]));
}

TEST(WatchedRun, WhoHasAskedBeforeGetsWhatIsNew) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0) + step_line(1, 4) + step_line(2, 3));
  WatchedRun run(folder.path());
  run.refresh();
  const Json first = run.state({});
  EXPECT_EQ(first["steps"]["rows"].size(), 2u);
  append(folder / "metrics.jsonl", step_line(3, 2) + R"({"kind":"step","st)");
  run.refresh();
  const Json next = run.state({first["generation"], first["steps"]["stride"], 2, 0});
  EXPECT_EQ(next["steps"]["from"], 1) << "the last row that it has may have changed";
  EXPECT_EQ(next["steps"]["rows"].size(), 2u);
  EXPECT_EQ(next["steps"]["rows"][1][3], 2);
  EXPECT_EQ(run.state({77, 1, 2, 0})["steps"]["from"], 0) << "of another generation nothing counts";
}

// As live.js keeps rows.
void keep(std::vector<Json>& rows, const Json& answer) {
  rows.resize(answer["from"].get<std::size_t>());
  for (const Json& row : answer["rows"]) rows.push_back(row);
}

TEST(WatchedRun, WhoAsksNowAndThenHasTheRowsOfWhoAsksOnce) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0));
  WatchedRun run(folder.path());
  WatchedRun::Cursor cursor;
  std::vector<Json> steps, evaluations;
  for (int i = 1; i <= 5000; ++i) {
    append(folder / "metrics.jsonl",
           step_line(i, i) + Json{{"kind", "evaluation"}, {"step", i}, {"loss", i}}.dump() + "\n");
    if (i % 700 != 0 && i != 5000) continue;
    run.refresh();
    const Json state = run.state(cursor);
    keep(steps, state["steps"]);
    keep(evaluations, state["evaluations"]);
    cursor = {state["generation"], state["steps"]["stride"], steps.size(), evaluations.size(),
              state["evaluations"]["stride"]};
  }
  const Json whole = run.state({});
  EXPECT_GT(whole["evaluations"]["stride"], 1) << "they were thinned";
  // As text: what is not known is equal, too.
  EXPECT_TRUE(Json(steps).dump() == whole["steps"]["rows"].dump());
  EXPECT_TRUE(Json(evaluations).dump() == whole["evaluations"]["rows"].dump());
}

TEST(WatchedRun, StepsThatAResumedRunDoesAgainCountOnce) {
  const Folder folder;
  append(folder / "metrics.jsonl",
         run_line(0) + step_line(1, 4) + step_line(2, 3) + step_line(3, 9));
  WatchedRun run(folder.path());
  run.refresh();
  const Json before = run.state({});
  // It goes on from step 2, and its own time begins anew.
  append(folder / "metrics.jsonl",
         run_line(2) + R"({"kind":"step","step":3,"samples":30,"seconds":0.25,"loss":2})" + "\n");
  run.refresh();
  const Json after = run.state({before["generation"], before["steps"]["stride"], 3, 0});
  EXPECT_NE(after["generation"], before["generation"]);
  const Json& rows = after["steps"]["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2][3], 2);
  EXPECT_EQ(rows[2][2], 1.25) << "training time is that of both";
  EXPECT_EQ(after["starts"].size(), 2u);
}

TEST(WatchedRun, AnotherRunInTheFolderReplacesTheFirst) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0) + step_line(1, 4) + step_line(2, 4));
  append(folder / "events.jsonl", "{\"kind\":\"restart\"}\n");
  WatchedRun run(folder.path());
  run.refresh();
  std::ofstream(folder / "next") << run_line(0) + step_line(1, 5);
  std::filesystem::rename(folder / "next", folder / "metrics.jsonl");
  run.refresh();
  const Json state = run.state({});
  EXPECT_EQ(state["generation"], 1);
  EXPECT_EQ(state["events"].size(), 1u) << "the launcher's, which has started it anew";
  ASSERT_EQ(state["steps"]["rows"].size(), 1u);
  EXPECT_EQ(state["steps"]["rows"][0][3], 5);
}

TEST(WatchedRun, LinesThatAreNoJsonOrHaveOtherTypesAreSkipped) {
  const Folder folder;
  append(folder / "metrics.jsonl",
         "nonsense\n[1]\n{\"kind\":5,\"step\":\"x\"}\n\x01\xff\n" + step_line(1, 4));
  append(folder / "events.jsonl", "[]\n{\"kind\":\"lost\",\"text\":\"rank 3\"}\n");
  std::filesystem::create_directories(folder / "timeline");
  append(folder / "timeline/rank-0.jsonl",
         "{\"spans\":[[1],[\"a\",2,3],7],\"steps\":3}\n{\"spans\":[[0,5,10]]}\n");
  append(folder / "timeline/rank-x.jsonl", "{}\n");
  WatchedRun run(folder.path());
  run.refresh();
  const Json state = run.state({});
  EXPECT_EQ(state["steps"]["rows"].size(), 1u);
  EXPECT_EQ(state["events"].size(), 1u);
  EXPECT_EQ(run.timeline(0, 0)["ranks"][0]["spans"].size(), 1u);
}

TEST(WatchedRun, MembersOfOtherTypesDoNotKeepTheRestFromBeingShown) {
  const Folder folder;
  append(folder / "metrics.jsonl",
         R"({"kind":"run","step":0,"strategy":5,"workers":"x","started":7,"budget":[],"device":{}})"
         "\n" +
             step_line(1, 4));
  append(folder / "events.jsonl", R"({"kind":1,"text":[],"unix_ms":"x","rank":"y"})"
                                  "\n");
  append(folder / "summary.json", R"({"finished":"yes","per_worker":[1]})");
  append(folder / "run.json", R"({"config":3})");
  std::filesystem::create_directories(folder / "timeline");
  append(folder / "timeline/rank-0.jsonl",
         R"({"start":{"unix_us":"x","host":3}})"
         "\n"
         R"({"start":{"unix_us":1000,"host":4}})"
         "\n"
         R"({"spans":[[0,9223372036854775807,9223372036854775807],[0,5,10]],"steps":[[1,1e9]]})"
         "\n");
  append(folder / "timeline/rank-0.usage", R"({"usage":[1,2,3,4,5,6,"x",8]})"
                                           "\n");
  WatchedRun run(folder.path());
  for (int i = 0; i < 2; ++i) {
    run.refresh();
    const Json state = run.state({});
    EXPECT_EQ(state["steps"]["rows"].size(), 1u);
    EXPECT_EQ(state["status"], "stopped");
    EXPECT_EQ(state["starts"].size(), 1u);
    EXPECT_FALSE(state["starts"][0].contains("started"));
    EXPECT_FALSE(state["events"][0].contains("unix_ms"));
    EXPECT_FALSE(state["summary"].contains("per_worker"));
    EXPECT_EQ(run.timeline(0, 0)["ranks"][0]["spans"].size(), 1u);
    EXPECT_EQ(run.usage()["ranks"][0]["rows"].size(), 0u);
    EXPECT_NE(run.prometheus().find("skein_loss{strategy=\"\"} 4\n"), std::string::npos);
  }
}

TEST(WatchedRun, SpansThatWereNotReadWhenTheFileWasFullAreNotLost) {
  const Folder folder;
  std::filesystem::create_directories(folder / "timeline");
  const std::string now = folder / "timeline/rank-0.jsonl", old = folder / "timeline/rank-0.old";
  const std::string start = R"({"start":{"unix_us":1000000000,"host":"a"}})"
                            "\n";
  int written = 0;
  const auto write = [&] {
    ++written;
    append(now, "{\"spans\":[[0," + std::to_string(100 * written) + ",50]]}\n");
  };
  const auto next_file = [&] {
    if (std::filesystem::exists(now)) std::filesystem::rename(now, old);
    append(now, start);
  };
  WatchedRun run(folder.path());
  const auto expect_all = [&](const char* when) {
    run.refresh();
    std::vector<int> begins, expected;
    const Json timeline = run.timeline(0, 600'000'000);
    const auto origin = 1'000'000'000 - timeline["begin_us"].get<std::int64_t>();
    for (const Json& span : timeline["ranks"][0]["spans"])
      begins.push_back(static_cast<int>(span[1].get<std::int64_t>() - origin));
    for (int i = 1; i <= written; ++i) expected.push_back(100 * i);
    EXPECT_EQ(begins, expected) << when;
  };
  next_file();
  write();
  next_file();
  write();
  expect_all("at first there are two files");
  write();
  next_file();
  write();
  expect_all("renamed once");
  for (int i = 0; i < 2; ++i) {
    write();
    next_file();
  }
  write();
  expect_all("renamed twice");
  write();
  expect_all("in the same file");
}

TEST(TimelineWriter, CountsWhenTheDeviceWasBusyOnce) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0));
  for (int rank = 0; rank < 2; ++rank) {
    TimelineWriter writer(folder.path(), rank);
    const Time now = SteadyClock().now();
    const auto ms = [&](int at) { return now + std::chrono::milliseconds(at); };
    writer.span(Lane::forward, "", ms(0), ms(1));
    if (rank == 0) continue;
    writer.span(Lane::device_sums, "", ms(5), ms(12));
    writer.span(Lane::device_compute, "", ms(0), ms(10));
    writer.span(Lane::device_compute, "", ms(20), ms(21));
  }
  WatchedRun run(folder.path());
  run.refresh();
  const Json ranks = run.usage()["ranks"];
  EXPECT_TRUE(std::isnan(ranks[0]["rows"][0][8].get<double>())) << "it has no device";
  EXPECT_EQ(ranks[1]["rows"][0][8], 13);
  EXPECT_GT(ranks[1]["rows"][0][9], 0) << "of so many milliseconds";
  const std::string
      text = run.prometheus(),
      line = "skein_worker_device_busy_seconds_total{strategy=\"dear\",rank=\"1\"} 0.013\n";
  EXPECT_NE(text.find(line), std::string::npos) << text;
  EXPECT_EQ(text.find("busy_seconds_total{strategy=\"dear\",rank=\"0\""), std::string::npos);
}

TEST(MetricsWriter, WritesTextThatIsNotUtf8AllTheSame) {
  const Folder folder;
  const std::string cut = "na\xC3";  // within a character
  Record record;
  record.more[cut] = 1;
  MetricsWriter(folder / "x").write(record);
  std::ifstream in(folder / "x");
  EXPECT_EQ(Json::parse(in)["na\uFFFD"], 1);
}

TEST(WatchedRun, ShowsWhatTheWriterLeavesOfEachRank) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0));
  const Time now = SteadyClock().now();
  for (int rank = 0; rank < 2; ++rank) {
    TimelineWriter writer(folder.path(), rank, [] { return std::int64_t{1} << 30; });
    for (int step = 1; step <= 3; ++step) {
      const Time at = now + std::chrono::milliseconds(10 * step);
      writer.span(Lane::forward, "forward", at, at + std::chrono::milliseconds(4));
      writer.span(Lane::wait, "step", at + std::chrono::milliseconds(4),
                  at + std::chrono::milliseconds(9));
      writer.step_done(step, at + std::chrono::milliseconds(10));
    }
  }
  WatchedRun run(folder.path());
  run.refresh();
  const Json all = run.timeline(0, 0);
  EXPECT_EQ(all["step_us"], 10000);
  ASSERT_EQ(all["ranks"].size(), 2u);
  for (const Json& rank : all["ranks"]) {
    ASSERT_EQ(rank["spans"].size(), 6u);
    EXPECT_EQ(rank["spans"][1][0], int(Lane::wait));
    EXPECT_EQ(rank["spans"][1][2], 5000);
  }
  const Json one = run.timeline(all["latest_us"], 9000);
  EXPECT_EQ(one["ranks"][0]["spans"].size(), 2u) << "of the last step";
  const std::string text = run.prometheus();
  for (const char* line :
       {"skein_worker_phase_seconds_total{strategy=\"dear\",rank=\"1\",phase=\"forward\"} 0.012\n",
        "skein_worker_phase_seconds_total{strategy=\"dear\",rank=\"0\",phase=\"waiting\"} 0.015\n",
        "skein_worker_device_memory_bytes{strategy=\"dear\",rank=\"0\"} 1073741824\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
}

TEST(TimelineWriter, DropsWhatNobodyCouldLookAtAndCountsItAllTheSame) {
  const Folder folder;
  double written = 0;
  const Time now = SteadyClock().now();
  {
    TimelineWriter writer(folder.path(), 0);
    for (int i = 0; i < 200'000; ++i, ++written)
      writer.span(Lane::forward, "forward", now, now + std::chrono::microseconds(i));
  }
  const double quarters = 2 + seconds(SteadyClock().now() - now) / 0.25;
  std::ifstream spans(folder / "timeline/rank-0.jsonl"), usage(folder / "timeline/rank-0.usage");
  std::size_t kept = 0;
  double counted = 0;
  for (std::string line; std::getline(spans, line);)
    if (line.starts_with("{\"spans\"")) kept += Json::parse(line)["spans"].size();
  EXPECT_LE(double(kept), quarters * double(TimelineWriter::kMostSpansAtOnce));
  for (std::string line; std::getline(usage, line);)
    if (line.starts_with("{\"usage\"")) counted += Json::parse(line)["usage"][1].get<double>();
  EXPECT_NEAR(counted, written * (written - 1) / 2, written) << "microseconds of all of them";
}

TEST(WatchedRun, ShowsEvaluationsAndCheckpointsAndCountsThemApart) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0));
  {
    TimelineWriter writer(folder.path(), 0);
    const Time now = SteadyClock().now();
    const auto ms = [&](int at) { return now + std::chrono::milliseconds(at); };
    writer.span(Lane::loading, "", ms(0), ms(1));
    writer.span(Lane::forward, "", ms(1), ms(5));
    writer.step_done(1, ms(5));
    writer.span(Lane::hidden_update, "", ms(2), ms(4));
    writer.span(Lane::evaluation, "", ms(5), ms(12));
    writer.span(Lane::checkpoint, "", ms(12), ms(15));
  }
  WatchedRun run(folder.path());
  run.refresh();
  const Json row = run.usage()["ranks"][0]["rows"][0];
  ASSERT_EQ(row.size(), 13u);
  EXPECT_EQ(row[1], 4);
  EXPECT_EQ(row[3], 0) << "a hidden update takes none of the worker's time";
  EXPECT_EQ(row[10], 1);
  EXPECT_EQ(row[11], 7);
  EXPECT_EQ(row[12], 3);
  const Json all = run.timeline(0, 15'000);
  EXPECT_EQ(all["ranks"][0]["spans"].size(), 5u) << "up to the end of the checkpoint";
  EXPECT_NE(run.prometheus().find("phase=\"evaluation\"} 0.007"), std::string::npos);
}

TEST(WatchedRun, ReadsLinesOfUsageThatEarlierVersionsLeft) {
  const Folder folder;
  append(folder / "metrics.jsonl", run_line(0));
  std::filesystem::create_directories(folder / "timeline");
  append(
      folder / "timeline/rank-0.usage",
      "{\"start\":{\"unix_us\":1000000}}\n{\"usage\":[9000,1000,2000,3000,4000,5000,77,-1,-1]}\n");
  WatchedRun run(folder.path());
  run.refresh();
  const Json row = run.usage()["ranks"][0]["rows"][0];
  EXPECT_EQ(row[4], 4);
  EXPECT_EQ(row[6], 77);
  EXPECT_EQ(row[11], 0);
}

// --- colours

// Red, green and blue as linear light.
using Colour = std::array<double, 3>;

Colour colour_of(const std::string& hex) {
  Colour out{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double part = std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    out[i] = part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
  }
  return out;
}

// WCAG 2's, from 1 to 21.
double contrast(const Colour& a, const Colour& b) {
  const auto light = [](const Colour& c) {
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] + 0.05;
  };
  return std::max(light(a), light(b)) / std::min(light(a), light(b));
}

// In Oklab (https://bottosson.github.io/posts/oklab/), where black and white are 1 apart.
double distance(const Colour& a, const Colour& b) {
  const auto lab = [](const Colour& c) {
    const double l = std::cbrt(0.4122214708 * c[0] + 0.5363325363 * c[1] + 0.0514459929 * c[2]);
    const double m = std::cbrt(0.2119034982 * c[0] + 0.6806995451 * c[1] + 0.1073969566 * c[2]);
    const double s = std::cbrt(0.0883024619 * c[0] + 0.2817188376 * c[1] + 0.6299787005 * c[2]);
    return Colour{0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
                  1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
                  0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
  };
  const Colour x = lab(a), y = lab(b);
  return std::hypot(x[0] - y[0], x[1] - y[1], x[2] - y[2]);
}

// By name, of one theme; the dark one is the second block of the style sheet.
std::map<std::string, Colour> theme(const std::string& name) {
  const std::string css(asset("style.css"));
  const std::size_t dark = css.find(":root[data-theme=\"dark\"]");
  EXPECT_NE(dark, std::string::npos);
  const std::string block =
      name == "light" ? css.substr(0, dark) : css.substr(dark, css.find('}', dark) - dark);
  std::map<std::string, Colour> out;
  const std::regex one("--([a-z0-9-]+): (#[0-9a-f]{6});");
  for (std::sregex_iterator at(block.begin(), block.end(), one), end; at != end; ++at)
    out[(*at)[1]] = colour_of((*at)[2]);
  return out;
}

class PageColours : public ::testing::TestWithParam<const char*> {};

TEST_P(PageColours, OfSeriesAndOfLanesCanBeToldApart) {
  const auto colours = theme(GetParam());
  for (const char* kind : {"series-", "lane-"}) {
    int compared = 0;
    for (const auto& [a, first] : colours)
      for (const auto& [b, second] : colours) {
        if (!a.starts_with(kind) || !b.starts_with(kind) || a >= b) continue;
        ++compared;
        EXPECT_GE(distance(first, second), 0.12) << a << " and " << b;
      }
    EXPECT_GE(compared, 36) << kind;
  }
}

TEST_P(PageColours, StandOutFromWhatTheyAreDrawnOn) {
  const auto colours = theme(GetParam());
  for (const auto& [name, colour] : colours)
    if (name.starts_with("series-") || name.starts_with("lane-")) {
      EXPECT_GE(contrast(colour, colours.at("surface")), 3) << name;
    }
  for (const char* text : {"text", "muted", "accent", "good", "warn"})
    for (const char* behind : {"background", "surface"})
      EXPECT_GE(contrast(colours.at(text), colours.at(behind)), 4.5) << text << " on " << behind;
}

INSTANTIATE_TEST_SUITE_P(Themes, PageColours, ::testing::Values("light", "dark"),
                         [](const auto& each) { return std::string(each.param); });

TEST(TimelineWriter, KeepsTheNewestInTwoBoundedFiles) {
  const Folder folder;
  constexpr std::size_t kBytes = 4000;
  for (int turn = 0; turn < 20; ++turn) {
    TimelineWriter writer(folder.path(), 0, {}, kBytes);
    const Time now = SteadyClock().now();
    for (int i = 0; i < 50; ++i)
      writer.span(Lane::forward, "", now, now + std::chrono::microseconds(1000 * turn));
  }
  std::uintmax_t bytes = 0;
  for (const char* name : {"timeline/rank-0.jsonl", "timeline/rank-0.old"})
    bytes += std::filesystem::file_size(folder / name);
  EXPECT_LE(bytes, 2 * (kBytes + 1000));
  WatchedRun run(folder.path());
  run.refresh();
  const Json spans = run.timeline(0, 10'000'000)["ranks"][0]["spans"];
  ASSERT_GE(spans.size(), 100u);
  EXPECT_EQ(spans.back()[2], 19000);
}

TEST(WatchedRun, PrometheusTextHasHelpTypeAndEscapedLabels) {
  const Folder folder;
  append(folder / "metrics.jsonl",
         Json{{"kind", "run"}, {"step", 0}, {"strategy", "a\"b\\c\nd"}, {"workers", 2}}.dump() +
             "\n" + step_line(7, 0.25) +
             R"({"kind":"evaluation","step":7,"samples":70,"seconds":3,"loss":1,"accuracy":0.5})" +
             "\n");
  WatchedRun run(folder.path());
  run.refresh();
  const std::string text = run.prometheus();
  EXPECT_NE(text.find("# TYPE skein_loss gauge\nskein_loss{strategy=\"a\\\"b\\\\c\\nd\"} 0.25\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("skein_steps_total{strategy=\"a\\\"b\\\\c\\nd\"} 7\n"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("consensus"), std::string::npos) << "nothing is known of it";
  std::istringstream in(text);
  std::set<std::string> typed;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# TYPE ")) typed.insert(line.substr(7, line.find(' ', 7) - 7));
    if (!line.starts_with("#")) {
      EXPECT_TRUE(typed.contains(line.substr(0, line.find('{')))) << line;
    }
  }
}

TEST(PageAddress, IsAPortOrHostAndPort) {
  EXPECT_EQ(parse_page_address("--page", "8080").host, "127.0.0.1");
  EXPECT_EQ(parse_page_address("--page", "0.0.0.0:81").port, 81);
  EXPECT_EQ(parse_page_address("--page", "[::1]:82").host, "::1");
  for (const char* wrong : {"", "x", "-1", "65536", "a:", ":80", "::1:80", "80 ", "[]:80", "1:2:3"})
    EXPECT_THROW(parse_page_address("--page", wrong), ConfigError) << wrong;
}

TEST(PageToken, OnlyTheWholeTokenIsTheToken) {
  const std::string token = fresh_token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_NE(token, fresh_token());
  EXPECT_TRUE(same_token(token, token));
  EXPECT_FALSE(same_token(token, token.substr(1)));
  EXPECT_FALSE(same_token(token, token + "0"));
  EXPECT_FALSE(same_token(token, ""));
  EXPECT_FALSE(same_token("", "")) << "no token is nobody's";
  std::string other = token;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(same_token(token, other));
  EXPECT_EQ(bearer_token("Bearer " + token), token);
  EXPECT_EQ(bearer_token("Basic " + token), "");
}

}  // namespace
}  // namespace skein
