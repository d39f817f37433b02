// `skein bench` runs and reports every figure. How fast it all is, is for bench/ to say.
#include <nlohmann/json.hpp>

#include "fabric/fabric.h"
#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

Finished bench(std::vector<std::string> words) {
  words.insert(words.begin(), {kSkein, "bench"});
  return run(words);
}

TEST(Bench, FabricReportsEveryOperationBesideMemcpy) {
  const Folder folder;
  const auto end = bench({"fabric", "--workers", "3", "--bytes", "300KB", "--repeat", "5", "--json",
                          folder / "f.json"});
  ASSERT_EQ(end.code, 0) << end.err;
  const auto json = nlohmann::json::parse(contents(folder / "f.json"));
  EXPECT_EQ(json.at("command"), "bench fabric");
  EXPECT_EQ(json.at("fabric"), "local");
  EXPECT_EQ(json.at("workers"), 3);
  EXPECT_EQ(json.at("bytes"), 300000);
  EXPECT_EQ(json.at("rounds"), 5);
  EXPECT_FALSE(json.at("version").get<std::string>().empty());
  EXPECT_GT(json.at("rs_ag_over_memcpy"), 0);
  std::vector<std::string> names;
  for (const auto& row : json.at("operations")) {
    names.push_back(row.at("name"));
    EXPECT_GT(row.at("min_ms"), 0) << row;
    EXPECT_LE(row.at("min_ms"), row.at("p50_ms")) << row;
    EXPECT_LE(row.at("p50_ms"), row.at("p99_ms")) << row;
    if (row.at("name") == "barrier") {
      EXPECT_TRUE(row.at("ratio").is_null());
      continue;
    }
    EXPECT_GT(row.at("bytes_moved"), 0) << row;
    EXPECT_NEAR(row.at("ratio"), row.at("p50_ms").get<double>() / row.at("limit_ms").get<double>(),
                1e-9)
        << row;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"reduce_scatter", "all_gather", "all_reduce",
                                             "broadcast", "barrier"}));
  // Two of three shards come in; shards start on cache lines.
  EXPECT_NEAR(json.at("operations").at(0).at("bytes_moved"), 200000, 128);
  EXPECT_EQ(count(end.out, "reduce-scatter + all-gather over memcpy: budget <= 1.25 x: "), 1)
      << end.out;
}

TEST(Bench, FabricOnAnEmulatedLinkIsNotFasterThanTheLink) {
  const Folder folder;
  const auto end =
      bench({"fabric", "--workers", "2", "--bytes", "200KB", "--repeat", "3", "--emulate-link",
             "100mbit", "--emulate-latency", "5ms", "--json", folder / "f.json"});
  ASSERT_EQ(end.code, 0) << end.err;
  const auto json = nlohmann::json::parse(contents(folder / "f.json"));
  EXPECT_TRUE(json.at("emulated"));
  // 100 KB at 12.5 MB/s, and 5 ms.
  EXPECT_NEAR(json.at("operations").at(0).at("limit_ms"), 13, 0.02);
  for (const auto& row : json.at("operations")) EXPECT_GE(row.at("ratio"), 0.999) << row;
  EXPECT_GE(json.at("rs_ag_over_link"), 0.999);
}

TEST(Bench, KernelsReportsRatesBesideMemcpy) {
  const Folder folder;
  const auto end = bench({"kernels", "--bytes", "64KiB", "--json", folder / "k.json"});
  ASSERT_EQ(end.code, 0) << end.err;
  const auto json = nlohmann::json::parse(contents(folder / "k.json"));
  EXPECT_EQ(json.at("bytes"), 65536);
  EXPECT_GE(json.at("kernels").size(), 8u);
  for (const auto& row : json.at("kernels")) {
    EXPECT_GT(row.at("bytes_per_second"), 0) << row;
    EXPECT_GT(row.at("memcpy_bytes_per_second"), 0) << row;
  }
}

TEST(Bench, RefusesWhatCannotBe) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const auto end = bench(words);
    EXPECT_EQ(end.code, 2) << end.err;
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
    return end.err;
  };
  EXPECT_EQ(refusal({"fabric", "--workers", "1"}),
            "skein bench fabric: --workers 1: expected a whole number from 2 to " +
                std::to_string(kMostWorkersOfAHost) + "\n");
  EXPECT_EQ(refusal({"fabric", "--bytes", "1"}),
            "skein bench fabric: --bytes 1: expected from 4 bytes to 64 GiB\n");
  EXPECT_EQ(refusal({"fabric", "--byte", "1MB"}),
            "skein bench fabric: unknown option '--byte'; did you mean '--bytes'?\n");
  EXPECT_EQ(refusal({}),
            "skein bench: of what? expected kernels or fabric; skein bench --help says more\n");
  EXPECT_EQ(count(refusal({"fabrik"}), "unknown command 'fabrik': expected kernels, fabric"), 1);
}

}  // namespace
}  // namespace skein::testing
