#include "compare/job.h"

#include <algorithm>

#include "launch/shell.h"

namespace skein::compare {
namespace {

// Of a `set` the part before its value.
std::string identity(const JobOption& option) {
  if (option.name != "set") return option.name;
  return "set " + option.value.substr(0, option.value.find('='));
}

}  // namespace

void put(Job& job, const JobOption& option) {
  const auto place = std::find_if(job.begin(), job.end(), [&](const JobOption& each) {
    return identity(each) == identity(option);
  });
  const bool off = option.flag && option.value == "false";
  if (place == job.end()) {
    if (!off) job.push_back(option);
  } else if (off) {
    job.erase(place);
  } else {
    *place = option;
  }
}

void drop(Job& job, const std::string& name) {
  std::erase_if(job, [&](const JobOption& each) { return each.name == name; });
}

const std::string* find(const Job& job, const std::string& name) {
  for (const JobOption& each : job)
    if (each.name == name) return &each.value;
  return nullptr;
}

Job changed(Job base, const Job& changes) {
  for (const JobOption& option : changes) put(base, option);
  return base;
}

std::vector<std::string> words(const Job& job) {
  std::vector<std::string> out;
  out.reserve(2 * job.size());
  for (const JobOption& option : job) {
    out.push_back(std::string("--").append(option.name));
    if (!option.flag) out.push_back(option.value);
  }
  return out;
}

std::string command_text(const std::string& program, const std::vector<std::string>& arguments) {
  std::string out = shell_quoted(program);
  for (const std::string& word : arguments) out.append(" ").append(shell_quoted(word));
  return out;
}

}  // namespace skein::compare
