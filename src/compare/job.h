// The options of one run, as data: what `skein train` or `skein simulate` is started with.
#pragma once

#include <string>
#include <vector>

namespace skein::compare {

struct JobOption {
  std::string name;   // long, without dashes
  std::string value;  // of a flag: "true" or "false"
  bool flag = false;

  bool operator==(const JobOption&) const = default;
};

using Job = std::vector<JobOption>;

// Gives the option its value: in the place of what it had, else at the end. A flag that is "false"
// goes. `set` may be there many times, once for each PART.KEY.
void put(Job& job, const JobOption& option);

// Removes it, `set` altogether.
void drop(Job& job, const std::string& name);

// The value of an option other than `set`, or null.
const std::string* find(const Job& job, const std::string& name);

// `base` with every option of `changes` put into it.
Job changed(Job base, const Job& changes);

// As words of a command line.
std::vector<std::string> words(const Job& job);

// "skein train …" as a person would type it in a shell.
std::string command_text(const std::string& program, const std::vector<std::string>& arguments);

}  // namespace skein::compare
