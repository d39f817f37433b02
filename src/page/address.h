// Where the page is, and who may see it.
#pragma once

#include <string>
#include <string_view>

namespace skein {

struct PageAddress {
  std::string host = "127.0.0.1";  // a name or a number, without brackets
  int port = 0;                    // 0: a free one
};

// "8080", "0:8080" with a host in front, "[::1]:8080". ConfigError, naming `option`, for anything
// else.
PageAddress parse_page_address(const std::string& option, const std::string& text);

// 128 random bits as text.
std::string fresh_token();

// Takes as long whatever differs, so that nobody can find a token out letter by letter.
bool same_token(std::string_view token, std::string_view given);

// What comes after "Bearer " in an Authorization header; empty: nothing of the kind.
std::string_view bearer_token(std::string_view authorization);

}  // namespace skein
