// What is said about an advice, in whole sentences.
#pragma once

#include <string>
#include <vector>

#include "advise/advice.h"

namespace skein::advise {

// Why the recommended one: one sentence.
std::string reason(const Advice& advice);

// What throughput does not say about the recommended one: one or two sentences.
std::string caution(const Advice& advice);

// What would change the answer, a sentence each.
std::vector<std::string> change_sentences(const Advice& advice);

// "2.5 Gb/s": a bandwidth of so many bytes per second.
std::string rate_text(double bytes_per_second);

}  // namespace skein::advise
