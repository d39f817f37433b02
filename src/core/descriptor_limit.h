// The limit on how many files and sockets a process has open at a time (RLIMIT_NOFILE).
#pragma once

#include <cstdint>
#include <string>

namespace skein {

// Raises this process's own limit to what the system allows it (the soft limit to the hard one), at
// most to 65,536 or what `more` descriptors need. Processes that it starts inherit it.
//
// Throws ConfigError unless `more` descriptors can then be opened beside those that are open now.
// `who` needs them, as in "rank 3 of 1000 workers over tcp"; the message also names the need, the
// limit and how to raise it.
void need_descriptors(std::int64_t more, const std::string& who);

// Describes an errno value. Where descriptors have run out, the text names the limit and how to
// raise it.
std::string system_error_text(int code);

}  // namespace skein
