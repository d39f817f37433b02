#include "page/address.h"

#include <fmt/format.h>

#include <random>

#include "core/parse_number.h"
#include "skein/error.h"

namespace skein {

PageAddress parse_page_address(const std::string& option, const std::string& text) {
  PageAddress address;
  std::string_view rest = text;
  bool fits = true;
  if (const std::size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    std::string_view host = rest.substr(0, colon);
    rest.remove_prefix(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    else
      fits = host.find_first_of(":[]") == std::string_view::npos;  // IPv6 needs both brackets
    fits = fits && !host.empty();
    address.host = host;
  }
  if (!fits || !parse_number(rest, address.port) || address.port < 0 || address.port > 65535)
    throw ConfigError(fmt::format(
        "{} {}: expected PORT, or HOST:PORT to be seen from other hosts, with a port from 0 (a "
        "free one) to 65535",
        option, text));
  return address;
}

std::string fresh_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

bool same_token(std::string_view token, std::string_view given) {
  unsigned difference = token.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const char other = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned>(static_cast<unsigned char>(token[i]) ^
                                        static_cast<unsigned char>(other));
  }
  return difference == 0 && !token.empty();
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kBearer = "Bearer ";
  return authorization.starts_with(kBearer) ? authorization.substr(kBearer.size())
                                            : std::string_view();
}

}  // namespace skein
