#include "page/self_contained.h"

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "page/assets.h"
#include "skein/error.h"

namespace skein {
namespace {

// Replaces every BEGIN name END of `html` by what `with` makes of the name.
template <typename With>
std::string replace_each(std::string_view html, std::string_view begin, std::string_view end,
                         With with) {
  std::string out;
  for (;;) {
    const std::size_t at = html.find(begin);
    if (at == std::string_view::npos) return out.append(html);
    out.append(html.substr(0, at));
    html.remove_prefix(at + begin.size());
    const std::size_t close = html.find(end);
    SKEIN_CHECK(close != std::string_view::npos, "a page of ours names a file and does not end it");
    out += with(html.substr(0, close));
    html.remove_prefix(close + end.size());
  }
}

std::string_view needed(std::string_view name) {
  const std::string_view text = asset(name);
  SKEIN_CHECK(!text.empty(), "a page of ours names a file that there is not");
  return text;
}

}  // namespace

// `<` opens everything that a script element's text must not hold, and stands in strings only.
std::string script_safe(const nlohmann::json& json) {
  const std::string text =
      json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

std::string self_contained(std::string_view page, const nlohmann::json& data) {
  if (const std::string_view missing = plots_missing(); !missing.empty())
    throw ConfigError("there is no page: " + std::string(missing));
  // Data last, and styles first: what they hold is not looked at again.
  std::string html(needed(page));
  const std::string mark = "<!-- data -->";
  const std::size_t at = html.find(mark);
  std::string head = html.substr(0, at == std::string::npos ? 0 : at);
  std::string tail = at == std::string::npos ? html : html.substr(at + mark.size());
  const auto inlined = [](std::string_view text) {
    const std::string styled = replace_each(
        text, R"(<link rel="stylesheet" href=")", R"(">)",
        [](std::string_view name) { return "<style>\n" + std::string(needed(name)) + "</style>"; });
    return replace_each(styled, R"(<script src=")", R"("></script>)", [](std::string_view name) {
      return "<script>\n" + std::string(needed(name)) + "\n</script>";
    });
  };
  std::string out = inlined(head);
  if (at != std::string::npos)
    out += R"(<script type="application/json" id="skein-data">)" + script_safe(data) + "</script>";
  return out + inlined(tail);
}

}  // namespace skein
