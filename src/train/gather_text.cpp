#include "train/gather_text.h"

#include <algorithm>

namespace skein {

std::vector<std::string> gather_text(World& world, const std::string& own) {
  const auto lengths = world.gather({static_cast<double>(own.size())});
  double longest = 0;
  for (const auto& length : lengths)
    if (!length.empty()) longest = std::max(longest, length.front());
  std::vector<double> letters(own.begin(), own.end());
  letters.resize(static_cast<std::size_t>(longest));
  std::vector<std::string> texts;
  for (const auto& row : world.gather(letters)) {
    std::string text;
    for (const double letter : row) text += static_cast<char>(letter);
    texts.push_back(text.substr(0, text.find('\0')));
  }
  return texts;
}

}  // namespace skein
