// Networks as people write them: presets, changes to them, and files of links.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/network.h"
#include "sim/testbed.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

template <typename Function>
std::string config_error(const Function& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

std::string network_error(const std::string& text) {
  return config_error([&] { parse_network(text); });
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(ParseNetwork, PresetsHaveTheirNumbers) {
  EXPECT_EQ(network_names(),
            (std::vector<std::string>{"1gbe", "10gbe", "25gbe", "100gib", "wan", "link"}));
  EXPECT_EQ(parse_network("1gbe").bytes_per_second, 117.5e6);
  EXPECT_EQ(parse_network("25gbe").latency, 30us);
  EXPECT_EQ(parse_network("wan").latency, 20ms);
  EXPECT_EQ(parse_network("wan").jitter, 1ms);
  EXPECT_EQ(parse_network("10gbe").name, "10gbe");
  EXPECT_EQ(parse_network("10gbe").chunk_bytes, 65536u);
}

// The published cost of an all-reduce per byte at 64 workers.
TEST(ParseNetwork, ThePublishedClusterComesOutAsMeasured) {
  const double rounds = 2 * 63.0 / 64;
  EXPECT_NEAR(rounds / parse_network("10gbe").bytes_per_second, 1.70e-9, 0.005e-9);
  EXPECT_NEAR(rounds / parse_network("100gib").bytes_per_second, 5.9e-10, 0.005e-9);
}

TEST(ParseNetwork, EveryKeyChangesItsNumber) {
  const Network network = parse_network(
      "10gbe:bandwidth=1gbit,latency=30us,jitter=5us,local_bandwidth=2GB/s,local_latency=1us,"
      "chunk=4KiB");
  EXPECT_EQ(network.bytes_per_second, 125e6);
  EXPECT_EQ(network.latency, 30us);
  EXPECT_EQ(network.jitter, 5us);
  EXPECT_EQ(network.local_bytes_per_second, 2e9);
  EXPECT_EQ(network.local_latency, 1us);
  EXPECT_EQ(network.chunk_bytes, 4096u);
  EXPECT_EQ(parse_network("10gbe:chunk=none").chunk_bytes, 0u);
  EXPECT_EQ(parse_network("10gbe:chunk=1").chunk_bytes, 64u);
  EXPECT_EQ(parse_network("link:bandwidth=8mbit").bytes_per_second, 1e6);
}

TEST(ParseNetwork, ErrorsNameTheOptionAndWhatWasExpected) {
  for (const char* text : {"", "token-ring", "10gbe:speed=1gbit", "10gbe:latency=30",
                           "10gbe:bandwidth=fast", "10gbe:bandwidth=0", "10gbe:chunk=small",
                           "10gbe:latency", "10gbe:latency=1us,latency=2us", "link"})
    expect_has(network_error(text), std::string("--network ") + text + ":");
  expect_has(network_error("token-ring"), "1gbe, 10gbe, 25gbe, 100gib, wan, link");
  expect_has(network_error("10gbe:speed=1gbit"), "unknown key 'speed': expected bandwidth");
  expect_has(network_error("10gbe:latency=30"), "latency");
  expect_has(network_error("10gbe:chunk=small"), "or none");
  expect_has(network_error("link"), "bandwidth is missing");
}

class LinkFile : public testing::Test {
 protected:
  LinkFile()
      : path_(std::filesystem::temp_directory_path() /
              ("skein_links_" + std::to_string(getpid()))) {}
  ~LinkFile() override { std::filesystem::remove(path_); }
  std::vector<LinkOverride> read(const std::string& text, int hosts) {
    std::ofstream(path_) << text;
    return read_links(path_, hosts);
  }
  std::string error(const std::string& text, int hosts = 4) {
    return config_error([&] { read(text, hosts); });
  }
  Network network(const std::string& text, int hosts) {
    Network network = plain_network(kByteAtNanosecond, 10us);
    network.links = read(text, hosts);
    return network;
  }
  std::filesystem::path path_;
};

TEST_F(LinkFile, HasHostsBandwidthAndLatencyOnEachLine) {
  const auto links = read("# slow ones\n0 3 100mbit 2ms  # far away\n\n* 1 1gbit\n", 4);
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].from, 0);
  EXPECT_EQ(links[0].to, 3);
  EXPECT_EQ(links[0].bytes_per_second, 12.5e6);
  EXPECT_EQ(links[0].latency, 2ms);
  EXPECT_EQ(links[1].from, -1);
  EXPECT_EQ(links[1].to, 1);
  EXPECT_LT(links[1].latency, 0s);
}

TEST_F(LinkFile, ErrorsHaveTheNumberOfTheLine) {
  const std::string good = "0 1 1gbit\n# comment\n", place = path_.string() + ":3: ";
  expect_has(error(good + "0 1"), place + "expected FROM TO BANDWIDTH [LATENCY]");
  expect_has(error(good + "0 1 1gbit 1ms more"), place + "expected FROM TO");
  expect_has(error(good + "0 4 1gbit"), place + "'4': expected a host from 0 to 3, or *");
  expect_has(error(good + "-1 2 1gbit"), place + "'-1': expected a host");
  expect_has(error(good + "x 2 1gbit"), place + "'x': expected a host");
  expect_has(error(good + "0 2 fast"), place + "'fast' is not a bandwidth");
  expect_has(error(good + "0 2 0"), place);
  expect_has(error(good + "0 2 1gbit 3"), place + "'3' is not a duration");
  expect_has(config_error([&] { read_links("/nonexistent/links", 2); }), "cannot be read");
}

TEST_F(LinkFile, ALinkLimitsItsDirectionOnly) {
  Cluster cluster(3, network("0 1 1MB/s 5ms\n", 3), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = 10000},
                                  {.from = 1, .to = 0, .bytes = 10000},
                                  {.from = 2, .to = 1, .bytes = 10000}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 10ms + 5ms);
  EXPECT_EQ(transfers[1].arrived.at, 10us + 10us);
  EXPECT_LT(transfers[2].arrived.at, 21us);  // the slow flow takes a thousandth of the connection
}

TEST_F(LinkFile, LaterLinesWinAndStarsAreAll) {
  Cluster cluster(3, network("0 1 2MB/s\n* * 1MB/s 1ms\n2 * 4MB/s\n", 3), 1);
  EXPECT_EQ(cluster.delay(0, 1), 1ms);
  EXPECT_EQ(cluster.delay(2, 1), 10us);  // the network's: the line that won says nothing
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = 8000},
                                  {.from = 2, .to = 0, .bytes = 8000}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 8ms + 1ms);
  EXPECT_EQ(transfers[1].arrived.at, 2ms + 10us);
}

// All workers of a host pair share its link.
TEST_F(LinkFile, ALinkIsSharedByTheWorkersOfItsHosts) {
  Network shared = network("0 1 1MB/s\n", 2);
  shared.workers_per_host = 2;
  Cluster cluster(4, shared, 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 2, .bytes = 4000},
                                  {.from = 1, .to = 3, .bytes = 4000}};
  run_transfers(cluster, transfers);
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.arrived.at, 8ms + 10us);
}

}  // namespace
}  // namespace skein::sim
