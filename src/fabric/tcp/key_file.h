// Reads files that say who a worker is: small ones, some of which nobody else may read.
#pragma once

#include <functional>
#include <string>

namespace skein::tcp {

enum class Readers { owner, anybody };  // who may read the file

// All of the file in `path`. Calls `refuse`, which throws, with what is wrong about it: it cannot
// be read, is longer than `most` bytes, or others than its owner may read or write it.
std::string read_key_file(const std::string& path, std::size_t most, Readers readers,
                          const std::function<void(const std::string&)>& refuse);

}  // namespace skein::tcp
