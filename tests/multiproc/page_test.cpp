// The live page of `skein train --page`, and `skein watch`: as clients see it, and in a real
// browser.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "multiproc/http.h"
#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

PageUrl url_of(const Process& process, bool in_err) {
  PageUrl url;
  eventually([&] {
    url = PageUrl::in(in_err ? process.err() : process.out());
    return url.port != 0;
  });
  return url;
}

Words watch(const std::string& folder, const Words& more = {}) {
  return with({kSkein, "watch", folder, "--page", "0"}, more);
}

// A run that goes on until it is stopped.
const Words kLong{"--workers",      "2",
                  "--model",        "mlp",
                  "--batch",        "8",
                  "--page",         "0",
                  "--samples",      "100000000",
                  "--emulate-step", "5ms",
                  "--set",          "model.width=32"};

TEST(Page, ARunWithoutFolderIsShownWhileItGoesOnAndLeavesNothing) {
  const Folder temporary;
  Process run(command(kLong), {{"TMPDIR", temporary.path()}});
  const PageUrl url = url_of(run, true);
  ASSERT_NE(url.port, 0) << run.err();
  Json state;
  ASSERT_TRUE(eventually([&] {
    state =
        Json::parse(body_of(ask(url.port, "GET /api/state?token=" + url.token)), nullptr, false);
    return state.is_object() && state["steps"]["rows"].size() >= 5 && state["ranks"].size() == 2 &&
           state["ranks"][1]["resident_bytes"].is_number();
  })) << state.dump()
      << run.err();
  EXPECT_EQ(state["status"], "running");
  EXPECT_EQ(state["starts"][0]["workers"], 2);
  EXPECT_GT(state["ranks"][1]["resident_bytes"].get<double>(), 1e6);
  const Json timeline = Json::parse(body_of(ask(url.port, "GET /api/timeline?token=" + url.token)));
  std::set<int> lanes;
  for (const Json& rank : timeline["ranks"])
    for (const Json& span : rank["spans"]) lanes.insert(span[0].get<int>());
  for (const int lane : {0, 1, 2, 5}) EXPECT_TRUE(lanes.contains(lane)) << "lane " << lane;

  EXPECT_EQ(status_of(ask(url.port, "GET /")), 401);
  EXPECT_EQ(status_of(ask(url.port, "GET /api/state?token=" + url.token.substr(1))), 401);
  EXPECT_EQ(status_of(ask(url.port, "GET /metrics")), 401);
  EXPECT_EQ(status_of(ask(url.port, "POST /?token=" + url.token, "Content-Length: 0\r\n")), 405);
  EXPECT_EQ(status_of(ask(url.port, "GET /etc/passwd?token=" + url.token)), 404);
  EXPECT_NE(body_of(ask(url.port, "GET /?token=" + url.token)).find("<title>"), std::string::npos);
  const std::string metrics =
      body_of(ask(url.port, "GET /metrics", "Authorization: Bearer " + url.token + "\r\n"));
  EXPECT_NE(metrics.find("skein_samples_total{strategy=\"allreduce\"} "), std::string::npos)
      << metrics;
  EXPECT_EQ(count(run.err(), url.token), 1) << "told once";

  ::kill(run.pid(), SIGINT);
  const Finished end = run.wait();
  EXPECT_NE(end.code, -1);
  EXPECT_TRUE(fs::is_empty(temporary.path())) << fs::directory_iterator(temporary.path())->path();
}

TEST(Page, APortThatIsTakenIsAnErrorBeforeTraining) {
  const Folder folder;
  std::ofstream(folder / "metrics.jsonl") << "\n";
  Process holder(watch(folder.path()));
  const PageUrl url = url_of(holder, false);
  ASSERT_NE(url.port, 0) << holder.err();
  const std::string port = std::to_string(url.port);
  refused({"--page", port, "--samples", "100000000", "--out", folder / "out"},
          {"--page", port, "in use"});
  EXPECT_FALSE(fs::exists(folder / "out/metrics.jsonl"));
  ::kill(holder.pid(), SIGTERM);
  EXPECT_EQ(holder.wait().code, 0);
}

TEST(Page, WhatDoesNotFitIsRefused) {
  refused({"--page", "http"}, {"--page http", "PORT"});
  refused({"--timeline"}, {"--timeline", "--out"});
  refused({"--page", "0", "--hosts", "a,b"}, {"--page 0", "--out"});
  const Finished none = run({kSkein, "watch", "/proc"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("/proc: no run there"), std::string::npos) << none.err;
}

TEST(Page, LostWorkersAndTheEndAreInTheFolder) {
  const Folder folder;
  Process run(
      command({"--workers", "3", "--strategy", "gossip", "--model", "mlp", "--samples", "2400",
               "--batch", "4", "--emulate-step", "10ms", "--timeline", "--out", folder / "out"}));
  ASSERT_TRUE(eventually(
      [&] { return count(contents(folder / "out/metrics.jsonl"), "\"kind\":\"step\"") >= 5; }));
  const auto workers = children_of(run);
  ASSERT_EQ(workers.size(), 3u);
  ::kill(workers.back(), SIGKILL);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  const std::string events = contents(folder / "out/events.jsonl");
  EXPECT_NE(events.find("\"kind\":\"lost\""), std::string::npos) << events;
  EXPECT_NE(events.find("\"kind\":\"ended\""), std::string::npos) << events;
}

TEST(Page, AFolderWhoseNameIsNotUtf8IsShown) {
  const Folder folder;
  const std::string out = folder / "na\xC3";
  train_ok({"--workers", "1", "--model", "mlp", "--samples", "64", "--batch", "8", "--timeline",
            "--out", out});
  Process server(watch(out));
  const PageUrl url = url_of(server, false);
  const Json state =
      Json::parse(body_of(ask(url.port, "GET /api/state?token=" + url.token)), nullptr, false);
  EXPECT_EQ(state.value("folder", ""), folder / "na\uFFFD");
}

// --- a real browser
// -------------------------------------------------------------------------------------------------

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    for (const char* folder : {"/usr/bin/", "/usr/local/bin/", "/snap/bin/"})
      if (fs::exists(std::string(folder) + name)) return std::string(folder) + name;
  return "";
}

// The page's text when its scripts have run, in a window of that width.
std::string dom_of(const std::string& url, int width) {
  const Folder profile;
  const std::string size = "--window-size=" + std::to_string(width) + ",900";
  const Finished end =
      Process({browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
               "--no-first-run", "--disable-background-networking", "--disable-component-update",
               "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir=" + profile.path(),
               "--virtual-time-budget=4000", size, "--dump-dom", url},
              {{"HOME", profile.path()}})
          .wait();
  EXPECT_EQ(end.code, 0) << end.err;
  return end.out;
}

std::string attribute(const std::string& dom, const std::string& after, const std::string& name) {
  const std::size_t at = dom.find(after), key = dom.find(name + "=\"", at);
  if (at == std::string::npos || key == std::string::npos) return "none";
  const std::size_t begin = key + name.size() + 2;
  return dom.substr(begin, dom.find('"', begin) - begin);
}

// Of the page's background: red, green and blue together.
int brightness(const std::string& dom) {
  int red = -1, green = -1, blue = -1;
  std::sscanf(attribute(dom, "<html", "data-background").c_str(), "rgb(%d, %d, %d)", &red, &green,
              &blue);
  EXPECT_GE(red, 0);
  return red + green + blue;
}

TEST(PageInChromium, LoadsWithoutErrorsDrawsAllPlotsAndShowsTheRunsNumbers) {
  if (browser().empty()) GTEST_SKIP() << "there is no chromium here (Debian: chromium)";
  const Folder folder;
  train_ok({"--workers", "2", "--strategy", "lasgd", "--model", "mlp", "--samples", "1280",
            "--batch", "8", "--eval-every", "320", "--timeline", "--out", folder / "out", "--json",
            folder / "run.json"});
  Process server(watch(folder / "out"));
  const PageUrl url = url_of(server, false);
  ASSERT_NE(url.port, 0) << server.err();
  const Json json = json_of(folder / "run.json");
  for (const int width : {390, 1280}) {
    SCOPED_TRACE(width);
    const std::string dom = dom_of(url.text("&check"), width);
    ASSERT_NE(dom.find("data-turns="), std::string::npos) << dom.substr(0, 500);
    EXPECT_EQ(attribute(dom, "<html", "data-problems"), "");
    EXPECT_EQ(attribute(dom, "<html", "data-blank"), "");
    EXPECT_EQ(attribute(dom, "<html", "data-scrolls"), "false");
    const std::string drawn = attribute(dom, "<html", "data-drawn") + " ";
    for (const char* plot : {"timeline", "usage", "loss", "accuracy", "speed", "exposed", "rate",
                             "consensus", "memory"})
      EXPECT_NE(drawn.find("plot-" + std::string(plot) + " "), std::string::npos)
          << plot << " of " << drawn;
    const auto figure = [&](const std::string& key) {
      return std::atof(attribute(dom, "data-figure=\"" + key + "\"", "data-raw").c_str());
    };
    EXPECT_EQ(figure("accuracy"), json["accuracy"].get<double>());
    EXPECT_EQ(figure("speed"), json["samples_per_second"].get<double>());
    EXPECT_EQ(figure("exposed"), json["exposed_comm_ms"].get<double>());
    EXPECT_EQ(figure("step"),
              lines_of(folder / "out/metrics.jsonl", "step").back()["step"].get<double>());
    EXPECT_NE(dom.find(">finished<"), std::string::npos);
    // Tab reaches every control in the order of the page, shows where it is, and each has a name.
    EXPECT_EQ(attribute(dom, "<html", "data-out-of-reach"), "");
    const std::string controls = "|" + attribute(dom, "<html", "data-controls") + "|";
    EXPECT_EQ(controls.find("||"), std::string::npos) << controls;
    std::size_t at = 0;
    for (const char* name : {"Dark", "earlier", "later", "Options of the run"})
      EXPECT_NE(at = controls.find("|" + std::string(name) + "|", at), std::string::npos)
          << name << " of " << controls;
    EXPECT_GT(brightness(dom), 3 * 200);
  }
  const std::string dark = dom_of(url.text("&check&theme=dark"), 1280);
  EXPECT_EQ(attribute(dark, "<html", "data-problems"), "");
  EXPECT_EQ(attribute(dark, "<html", "data-blank"), "");
  EXPECT_LT(brightness(dark), 3 * 60);
}

// A folder as a run leaves it whose rank 1 was lost before it was resumed, and rank 0 afterwards.
void write_resumed(const Folder& folder) {
  std::ofstream metrics(folder / "metrics.jsonl"), events(folder / "events.jsonl");
  for (const char* started : {"2026-01-02 03:00:00 UTC", "2026-01-02 04:00:00 UTC"})
    metrics << Json{{"kind", "run"},        {"step", 1},    {"samples", 8},
                    {"strategy", "gossip"}, {"workers", 2}, {"started", started},
                    {"budget", 1000000}}
            << "\n"
            << Json{{"kind", "step"}, {"step", 1}, {"samples", 8}, {"seconds", 1}, {"loss", 2}}
            << "\n";
  constexpr std::int64_t kFour = 1767326400000;  // of that day
  events << Json{{"kind", "lost"}, {"rank", 1}, {"unix_ms", kFour - 60'000}, {"text", "gone"}}
         << "\n"
         << Json{{"kind", "lost"}, {"rank", 0}, {"unix_ms", kFour + 60'000}, {"text", "gone"}}
         << "\n";
  fs::create_directories(folder / "timeline");
}

TEST(PageInChromium, GoesOnWithoutRankZeroAndCallsLostWhoIsLostNow) {
  if (browser().empty()) GTEST_SKIP() << "there is no chromium here (Debian: chromium)";
  const Folder folder;
  write_resumed(folder);
  std::atomic<bool> over = false;
  std::ofstream first(folder / "timeline/rank-0.jsonl"), second(folder / "timeline/rank-1.jsonl");
  const Json start{{"start", {{"unix_us", 1767326400000000}, {"host", "a"}}}};
  first << start << std::endl;
  second << start << std::endl;
  std::thread worker([&] {
    for (std::int64_t step = 1; !over; ++step) {
      second << Json{{"spans", {{0, 100'000 * step, 50'000}}}, {"steps", {{step, 100'000 * step}}}}
             << std::endl;
      std::this_thread::sleep_for(2ms);
    }
  });
  Process server(watch(folder.path()));
  const PageUrl url = url_of(server, false);
  const std::string dom = url.port == 0 ? "" : dom_of(url.text("&check"), 1280);
  over = true;
  worker.join();
  EXPECT_EQ(attribute(dom, "<html", "data-problems"), "");
  EXPECT_GE(std::atoi(attribute(dom, "<html", "data-draws").c_str()), 2);
  EXPECT_EQ(attribute(dom, "<html", "data-repeated-ticks"), "") << "after an hour, in a second";
  EXPECT_NE(dom.find("rank 0, lost"), std::string::npos) << server.err();
  EXPECT_NE(dom.find(">rank 1<"), std::string::npos);
}

}  // namespace
}  // namespace skein::testing
