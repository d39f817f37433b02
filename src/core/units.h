// Quantities as people write them: 25MB, 1gbit, 40ms. Every parse error names the text and the
// forms that are allowed.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace skein {

// "4096", "64KiB", "25MB", "1.5GB": bytes. KB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.
std::size_t parse_bytes(std::string_view text);

// "1gbit", "200mbit", "1.25GB/s": bytes per second. kbit, mbit, gbit are powers of 1000 bits.
double parse_bandwidth(std::string_view text);

// "40ms", "2s", "1m", "150us", "80ns": a duration. A bare number other than 0 is refused: of what?
std::chrono::nanoseconds parse_duration(std::string_view text);

std::string print_bytes(double bytes);                       // "26.2 MB"
std::string print_bandwidth(double bytes_per_second);        // "1 gbit"
std::string print_duration(std::chrono::nanoseconds value);  // "40 ms"
std::string print_count(double value);                       // "11.2 M"

}  // namespace skein
