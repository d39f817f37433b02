#include "advise/map_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "advise/cluster.h"
#include "advise/sentences.h"

namespace skein::advise {
namespace {

constexpr double kCellWidth = 88, kCellHeight = 52, kLeft = 96, kTop = 78;
constexpr std::pair<const char*, const char*> kColours[] = {
    {"allreduce", "#b8bcc2"}, {"dear", "#56b4e9"},   {"lasgd", "#2fb58d"}, {"local", "#f0e442"},
    {"abs", "#e69f00"},       {"gossip", "#dd9fc0"}, {"acid", "#e8804a"}};

const char* colour_of(const std::string& strategy) {
  for (const auto& [name, colour] : kColours)
    if (strategy == name) return colour;
  return "#ffffff";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, const std::string& style, const std::string& text) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" {}>{}</text>\n", x, y, style, escaped(text));
}

// Where a value lies among the places of an axis, from 0 to the number of places; the middle of
// place i is i + ½. Values are spaced by their logarithms, and held at the ends.
double place_of(double value, const std::vector<double>& places) {
  if (value <= places.front()) return 0.5;
  for (std::size_t i = 1; i < places.size(); ++i)
    if (value <= places[i])
      return static_cast<double>(i) - 0.5 +
             std::log(value / places[i - 1]) / std::log(places[i] / places[i - 1]);
  return static_cast<double>(places.size()) - 0.5;
}

std::string gain_text(double gain) {
  return gain >= 9.95 ? fmt::format("{:.0f} x", gain) : fmt::format("{:.2f} x", gain);
}

std::string draw_cell(const Map& map, std::size_t row, std::size_t column) {
  const Cell& cell = map.at(row, column);
  // The largest ratio on top.
  const double x = kLeft + kCellWidth * static_cast<double>(column);
  const double y = kTop + kCellHeight * static_cast<double>(map.ratios.size() - 1 - row);
  std::string out = fmt::format(
      "<g class=\"cell\"><title>{}, fastest over slowest {:g}: {}, {:.2f} times plain "
      "allreduce</title>\n<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "rx=\"4\" fill=\"{}\"/>\n",
      rate_text(map.bandwidths[column]), map.ratios[row], escaped(name_of(cell.setup)), cell.gain,
      x + 1, y + 1, kCellWidth - 2, kCellHeight - 2, colour_of(cell.setup.strategy));
  const double middle = x + kCellWidth / 2;
  out += text_at(middle, y + 24, "class=\"letter\"",
                 fmt::format("{}{}", letters_of(cell.setup), is_bf16(cell.setup) ? " bf16" : ""));
  return out + text_at(middle, y + 42, "class=\"gain\"", gain_text(cell.gain)) + "</g>\n";
}

std::string draw_axes(const Map& map, double right, double bottom) {
  std::string out;
  for (std::size_t column = 0; column < map.bandwidths.size(); ++column)
    out += text_at(kLeft + kCellWidth * (static_cast<double>(column) + 0.5), bottom + 18,
                   "class=\"tick\"", rate_text(map.bandwidths[column]));
  for (std::size_t row = 0; row < map.ratios.size(); ++row)
    out += text_at(kLeft - 20,
                   kTop + kCellHeight * (static_cast<double>(map.ratios.size() - row) - 0.5) + 5,
                   "class=\"tick\"", fmt::format("{:g}", map.ratios[row]));
  out += text_at((kLeft + right) / 2, bottom + 40, "class=\"tick\"",
                 "bandwidth of each host, each direction");
  const double middle = (kTop + bottom) / 2;
  return out + text_at(26, middle,
                       fmt::format("class=\"tick\" transform=\"rotate(-90 26 {:.0f})\"", middle),
                       "speed of the fastest worker over the slowest");
}

std::string draw_legend(const Map& map, double y) {
  std::string out;
  double x = kLeft;
  for (const auto& [name, colour] : kColours) {
    const bool there = std::any_of(map.cells.begin(), map.cells.end(),
                                   [&, n = name](const Cell& c) { return c.setup.strategy == n; });
    if (!there) continue;
    out += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{}\"/>\n", x,
        y - 12, colour);
    const std::string label = fmt::format("{} {}", letter_of(name), name);
    out += text_at(x + 20, y, "class=\"label\"", label);
    x += 44 + 8 * static_cast<double>(label.size());
  }
  out += fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"18\" height=\"14\" rx=\"3\" class=\"key\"/>\n", x,
      y - 12);
  out += text_at(x + 26, y, "class=\"label\"", "this cluster");
  return out + text_at(kLeft, y + 24, "class=\"label\"",
                       "b: each worker's share of a batch is by its speed");
}

// The cell that is nearest, with one frame inside another, so that it is seen on every colour.
std::string draw_here(const Map& map, const Advice& advice) {
  const double column =
      std::floor(place_of(advice.cluster.network.bytes_per_second, map.bandwidths));
  const double row = std::floor(place_of(ratio_of(advice.cluster), map.ratios));
  const double x = kLeft + kCellWidth * column;
  const double y = kTop + kCellHeight * (static_cast<double>(map.ratios.size()) - 1 - row);
  std::string out = "<g><title>this cluster is nearest to this cell</title>";
  for (const char* kind : {"around", "here"})
    out += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"4\" "
        "class=\"{}\"/>",
        x + 1, y + 1, kCellWidth - 2, kCellHeight - 2, kind);
  return out + "</g>\n";
}

}  // namespace

std::string map_svg(const Map& map, const Advice& advice) {
  const double right = kLeft + kCellWidth * static_cast<double>(map.bandwidths.size());
  const double bottom = kTop + kCellHeight * static_cast<double>(map.ratios.size());
  const double width = right + 24, height = bottom + 112;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"14\">\n"
      "<title>Which strategy suits which cluster</title>\n"
      "<style>\n"
      ".page {{ fill: #ffffff }} text {{ fill: #1c1e21 }}\n"
      ".letter {{ font-size: 18px; font-weight: 600 }} .gain {{ font-size: 13px }}\n"
      ".letter, .gain {{ fill: #101113; text-anchor: middle }} .tick {{ text-anchor: middle }}\n"
      ".head {{ font-size: 18px; font-weight: 600 }}\n"
      ".here, .key {{ fill: none; stroke: #101113; stroke-width: 3 }}\n"
      ".around {{ fill: none; stroke: #ffffff; stroke-width: 7 }}\n"
      "@media (prefers-color-scheme: dark) {{ .page {{ fill: #16181c }} .key {{ stroke: #e8eaed "
      "}}\n"
      "text:not(.letter):not(.gain) {{ fill: #e8eaed }} }}\n"
      "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
      width, height);
  out +=
      text_at(kLeft, 30, "class=\"head\"",
              fmt::format("{} on {} workers", advice.cluster.profile.name, advice.cluster.workers));
  out +=
      text_at(kLeft, 54, "class=\"label\"",
              "the recommended strategy, and its samples per second over those of plain allreduce");
  for (std::size_t row = 0; row < map.ratios.size(); ++row)
    for (std::size_t column = 0; column < map.bandwidths.size(); ++column)
      out += draw_cell(map, row, column);
  out += draw_axes(map, right, bottom) + draw_here(map, advice);
  return out + draw_legend(map, bottom + 72) + "</svg>\n";
}

}  // namespace skein::advise
