// skein topology: what a graph makes of gossip.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "core/atomic_file.h"
#include "graph/gossip_constants.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr int kMostVertices = 100'000;
constexpr double kLeastRate = 1e-6, kMostRate = 1e6;

struct Degrees {
  int least, most;
};

Degrees degrees(const Topology& graph) {
  Degrees out{graph.degree(0), graph.degree(0)};
  for (int rank = 1; rank < graph.size(); ++rank) {
    out.least = std::min(out.least, graph.degree(rank));
    out.most = std::max(out.most, graph.degree(rank));
  }
  return out;
}

std::string print_degrees(const Degrees& degrees) {
  if (degrees.least == degrees.most) return fmt::format("{}", degrees.least);
  return fmt::format("{} to {}", degrees.least, degrees.most);
}

// What it comes to. The gain is 2 · alpha~.
std::string summary(const GossipConstants& constants) {
  if (constants.eta == 0) return "One worker has nobody to average with.\n";
  const double with = constants.time_with_momentum(), without = constants.time_without();
  std::string out = fmt::format(
      "Without gradients, the bound on the squared distance between workers falls by a factor of "
      "e\n"
      "in {:.4g} gradients' time with momentum (acid, 1 / eta), in {:.4g} without (gossip, 2 "
      "chi1):\n",
      with, without);
  if (without / with < 1.0001) return out + "the momentum gains nothing on this graph.\n";
  return out + fmt::format("the momentum is {:.3g} times as fast.\n", without / with);
}

std::string print(const Topology& graph, double rate, const GossipConstants& constants) {
  std::string out = fmt::format("{}, {} workers, rate {}\n", graph.name(), graph.size(), rate);
  const auto line = [&](const char* name, const std::string& value, const char* meaning) {
    out += fmt::format("{:<12}{:>14}   {}\n", name, value, meaning);
  };
  const auto number = [](double value) { return fmt::format("{:.6g}", value); };
  line("edges", fmt::format("{}", graph.edges().size()), "pairs that average");
  line("neighbours", print_degrees(degrees(graph)), "of a worker");
  line("chi1", number(constants.chi1), "1 / the graph's slowest rate of averaging");
  line("chi2", number(constants.chi2), "half the largest effective resistance of an edge");
  line("eta", number(constants.eta), "mixing of x and x~ per gradient");
  line("alpha", number(constants.alpha), "step of x in an averaging");
  line("alpha~", number(constants.alpha_tilde), "step of x~");
  return out + summary(constants);
}

nlohmann::json figures(const Topology& graph, double rate, const GossipConstants& constants) {
  nlohmann::json edges = nlohmann::json::array();
  for (const auto& [a, b] : graph.edges()) edges.push_back({a, b});
  const auto [least, most] = degrees(graph);
  return {{"kind", graph.name()},
          {"workers", graph.size()},
          {"rate", rate},
          {"chi1", constants.chi1},
          {"chi2", constants.chi2},
          {"eta", constants.eta},
          {"alpha", constants.alpha},
          {"alpha_tilde", constants.alpha_tilde},
          {"time_with_momentum", constants.time_with_momentum()},
          {"time_without_momentum", constants.time_without()},
          {"degree", {{"min", least}, {"max", most}}},
          {"edge_count", graph.edges().size()},
          {"edges", std::move(edges)}};
}

class TopologyCommand {
 public:
  explicit TopologyCommand(CLI::App& command) : options_(command) {
    options_.group("The graph");
    options_.text(
        "--kind", kind_, "GRAPH",
        "ring, complete, exponential, torus, torus:4x8, star, random-regular:4, or a file "
        "with two ranks a line");
    options_.integer("-n,--workers", workers_, 1, kMostVertices, "N", "how many");
    options_.number(
        "--rate", rate_, fmt::format("a number from {} to {}", kLeastRate, kMostRate),
        [](double rate) { return rate >= kLeastRate && rate <= kMostRate; },
        "averagings that a worker takes part in per gradient of its own");
    options_.document("--edges", edges_, "FILE", "write the graph as a file that --kind reads");
    options_.declare_common();
  }

  int operator()() {
    options_.read_config_file();
    const JsonOutput json(options_, "topology");
    if (!edges_.empty()) prepare_file("--edges", edges_);
    const Topology graph = Topology::parse(kind_, workers_, options_.seed());
    if (!edges_.empty()) write_whole(edges_, print_edge_list(graph));
    const GossipConstants constants = gossip_constants(graph, rate_);
    fmt::print("{}", print(graph, rate_, constants));
    if (!edges_.empty() && !options_.quiet() && appears_by_rename(edges_))
      fmt::print("edges written to {}\n", edges_);
    json.write(figures(graph, rate_, constants), options_.seed(), options_.config());
    return 0;
  }

 private:
  CommandOptions options_;
  std::string kind_ = "ring", edges_;
  int workers_ = 8;
  double rate_ = 1;
};

}  // namespace

void add_topology(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand(
      "topology", "a graph's constants: how fast gossip averages on it, with and without momentum");
  command.footer(
      "Example: skein topology --kind ring --workers 64 --rate 1\n"
      "         skein topology --kind random-regular:4 --workers 64 --edges graph.txt");
  auto topology = std::make_shared<TopologyCommand>(command);
  command.callback(
      [topology, &invocation] { invocation.action = [topology] { return (*topology)(); }; });
}

}  // namespace skein
