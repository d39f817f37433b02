// Reads files that say who a worker is: small ones, some of which nobody else may read.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace skein::tcp {

enum class Readers { owner, anybody };  // who may read the file

// A text that is overwritten when it goes, so that memory that is used again does not show it.
class SecretText {
 public:
  explicit SecretText(std::size_t bytes) : text_(bytes, '\0') {}
  SecretText(SecretText&& other) noexcept { std::swap(text_, other.text_); }
  SecretText& operator=(SecretText&&) = delete;
  ~SecretText();

  std::string& text() { return text_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// All of the file in `path`. Calls `refuse`, which throws, with what is wrong about it: it cannot
// be read, or is longer than `most` bytes; or others than this user may read or write it, as the
// user whom it belongs to may.
SecretText read_key_file(const std::string& path, std::size_t most, Readers readers,
                         const std::function<void(const std::string&)>& refuse);

}  // namespace skein::tcp
