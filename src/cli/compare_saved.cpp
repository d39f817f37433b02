// skein compare show and skein compare diff: what earlier comparisons found.
#include "cli/compare_saved.h"

#include <fmt/format.h>

#include <memory>

#include "cli/compare_report.h"
#include "cli/json_output.h"
#include "compare/comparison.h"
#include "compare/difference.h"
#include "compare/table.h"
#include "core/atomic_file.h"
#include "page/assets.h"

namespace skein {
namespace {

class Saved {
 public:
  explicit Saved(CLI::App& command) : options_(command) {
    options_.group("Files");
    options_.document("--report", report_, "FILE", "write one HTML page of all this");
    options_.text("--title", title_, "TEXT", "of the page");
    options_.declare_common();
  }

 protected:
  void read_options() {
    options_.read_config_file();
    options_.open_documents(true);
  }

  void write(nlohmann::json figures, nlohmann::json page, const char* command) {
    const JsonOutput json(options_, command);
    if (!report_.empty()) {
      prepare_file("--report", report_);
      page["title"] = title_;
      const bool written = write_report(report_, page);
      if (written && appears_by_rename(report_))
        fmt::print("\n{} has all of it with plots\n", report_);
      else if (!written)
        fmt::print("\nno report: {}\n", plots_missing());
    }
    json.write(std::move(figures), options_.seed(), options_.config());
  }

  CommandOptions options_;
  std::string report_, title_;
};

class Show : Saved {
 public:
  explicit Show(CLI::App& command) : Saved(command) {
    command.add_option("DIR", paths_, "folders of comparisons, or their compare.json")->required();
  }

  int operator()() {
    read_options();
    nlohmann::json all = nlohmann::json::array();
    for (const std::string& path : paths_) {
      all.push_back(compare::read_comparison(path));
      const nlohmann::json& each = all.back();
      const auto comparison = compare::comparison_from_json(each);
      fmt::print("{}{}\n{}", all.size() > 1 ? "\n" : "",
                 comparison.title.empty() ? path : comparison.title,
                 compare::median_table(comparison));
      if (!options_.quiet())
        for (const auto& sentence : each.value("claims", std::vector<std::string>()))
          fmt::print("- {}\n", sentence);
      if (const auto text = each.value("recommendation", std::string()); !text.empty())
        fmt::print("{}\n", text);
    }
    write({{"comparisons", all}}, {{"comparisons", all}}, "compare show");
    return 0;
  }

 private:
  std::vector<std::string> paths_;
};

class Diff : Saved {
 public:
  explicit Diff(CLI::App& command) : Saved(command) {
    command.add_option("BEFORE", before_, "the folder of a comparison, or its compare.json")
        ->required();
    command.add_option("AFTER", after_, "another")->required();
  }

  int operator()() {
    read_options();
    const auto before = compare::read_comparison(before_), after = compare::read_comparison(after_);
    const auto changes = compare::changes_between(before, after);
    const auto sentences = compare::change_sentences(changes);
    fmt::print("{}\n", compare::change_table(changes));
    for (const std::string& sentence : sentences) fmt::print("- {}\n", sentence);
    const nlohmann::json figures{{"before_file", before_},
                                 {"after_file", after_},
                                 {"changes", compare::to_json(changes)},
                                 {"sentences", sentences}};
    nlohmann::json page = figures;
    page["before"] = before;
    page["after"] = after;
    write(figures, std::move(page), "compare diff");
    return 0;
  }

 private:
  std::string before_, after_;
};

template <typename Command>
void add(CLI::App& compare, const char* name, const char* help, const char* example,
         Invocation& invocation) {
  CLI::App& command = *compare.add_subcommand(name, help);
  command.footer(std::string("Example: ") + example);
  auto made = std::make_shared<Command>(command);
  command.callback([made, &invocation] { invocation.action = [made] { return (*made)(); }; });
}

}  // namespace

void add_compare_saved(CLI::App& compare, Invocation& invocation) {
  add<Show>(compare, "show", "print earlier comparisons, and write one report of them",
            "skein compare show out/demo/* --report out/demo/report.html", invocation);
  add<Diff>(compare, "diff", "two comparisons with each other, entries matched by name",
            "skein compare diff out/before out/after --report out/diff.html", invocation);
}

}  // namespace skein
