// `skein train` on a small job: enough to compare, quick to run.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Words command(const Words& options) {
  return with({kSkein, "train", "--quiet", "--set", "data.train=640", "--set", "data.test=40"},
              options);
}

inline Finished train(const Words& options) { return Process(command(options)).wait(); }

inline void train_ok(const Words& options) {
  const Finished end = train(options);
  ASSERT_EQ(end.code, 0) << end.err;
}

// The user's mistakes: exit code 2, one line that names what, where and what was expected.
inline void refused(const Words& options, const Words& parts) {
  const Finished end = train(options);
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_LE(count(end.err, "\n"), 2) << "once, not once per worker:\n" << end.err;
  for (const std::string& part : parts)
    EXPECT_NE(end.err.find(part), std::string::npos) << part << "\nin: " << end.err;
}

inline Json json_of(const std::string& path) { return Json::parse(contents(path)); }

// Those of one kind in a run's metrics.jsonl.
inline std::vector<Json> lines_of(const std::string& metrics, const std::string& kind) {
  std::istringstream in(contents(metrics));
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);)
    if (Json json = Json::parse(line); json["kind"] == kind) lines.push_back(json);
  return lines;
}

inline bool same_bytes(const std::string& one, const std::string& two) {
  const std::string a = contents(one);
  return !a.empty() && a == contents(two);
}

inline std::vector<pid_t> children_of(const Process& process) {
  const std::string pid = std::to_string(process.pid());
  std::istringstream list(contents("/proc/" + pid + "/task/" + pid + "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

}  // namespace skein::testing
