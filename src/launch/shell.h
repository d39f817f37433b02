// Words and the command lines of shells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein {

// `word` as a shell needs it typed.
std::string shell_quoted(std::string_view word);

// The words of a text, which spaces part.
std::vector<std::string> words_of(const std::string& text);

}  // namespace skein
