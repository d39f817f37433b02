#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/parse_number.h"
#include "graph/topology.h"
#include "skein/error.h"

namespace skein {
namespace {

// A double list of kMostEdges edges has fewer.
constexpr std::size_t kMostLines = std::size_t{1} << 26;

class EdgeListReader {
 public:
  EdgeListReader(const std::string& path, int workers) : path_(path), workers_(workers) {}

  std::vector<Edge> read() {
    errno = 0;
    std::ifstream in(path_);
    if (!in) throw ConfigError(fmt::format("topology {}: {}", path_, std::strerror(errno)));
    for (std::string line; std::getline(in, line);) {
      if (++line_ > kMostLines) refuse(fmt::format("expected at most {} lines", kMostLines));
      add(line.substr(0, line.find('#')));
    }
    if (in.bad())  // a folder opens, and cannot be read
      throw ConfigError(fmt::format("topology {}: {}", path_, std::strerror(errno)));
    return std::move(edges_);
  }

 private:
  void add(const std::string& text) {
    std::istringstream words(text);
    std::string a, b, more;
    if (!(words >> a)) return;
    if (!(words >> b) || words >> more) refuse(fmt::format("expected two ranks, not '{}'", text));
    const Edge edge{rank(a), rank(b)};
    if (edge.a == edge.b) refuse(fmt::format("rank {} is no neighbour of its own", edge.a));
    if (static_cast<std::int64_t>(edges_.size()) == 2 * kMostEdges)
      refuse(fmt::format("expected at most {} edges", kMostEdges));
    edges_.push_back(edge);
  }

  int rank(const std::string& word) const {
    int value = 0;
    if (!parse_number(word, value) || value < 0 || value >= workers_)
      refuse(fmt::format("rank {}: expected a whole number from 0 to {}", word, workers_ - 1));
    return value;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(fmt::format("topology {}:{}: {}", path_, line_, why));
  }

  std::string path_;
  int workers_;
  std::size_t line_ = 0;
  std::vector<Edge> edges_;
};

}  // namespace

std::vector<Edge> read_edge_list(const std::string& path, int workers) {
  return EdgeListReader(path, workers).read();
}

std::string print_edge_list(const Topology& topology) {
  std::string out = fmt::format("# {}, {} workers\n", topology.name(), topology.size());
  for (const auto& [a, b] : topology.edges()) out += fmt::format("{} {}\n", a, b);
  return out;
}

}  // namespace skein
