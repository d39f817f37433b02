// What a run keeps in its folder, without the run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/atomic_file.h"
#include "keep/background_writer.h"
#include "keep/checkpoint_files.h"
#include "keep/checkpoint_state.h"
#include "keep/run_folder.h"
#include "keep/unfinished_checkpoint.h"
#include "skein/checkpoint.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

class Keep : public ::testing::Test {
 protected:
  Keep() {
    std::string name = (fs::temp_directory_path() / "skein-keep-XXXXXX").string();
    out = ::mkdtemp(name.data());
  }
  ~Keep() override { fs::remove_all(out); }

  fs::path save(std::int64_t samples) {
    const fs::path path = out / "checkpoints" / std::to_string(samples);
    fs::create_directories(path);
    CheckpointState state;
    state.run_id = "00000000000000aa";
    state.samples = samples;
    state.workers = 2;
    state.data = CheckpointState::Data();
    write_checksums(path,
                    {{"model.safetensors", write_whole(path / "model.safetensors", "weights")},
                     {"state.json", write_whole(path / "state.json", print_state(state))}});
    return path;
  }

  RunRecord start() {
    const RunRecord run{run_id(0xaa), utc_now(), "", "0.1", "{}"};
    take_folder(out, run);
    return run;
  }

  static std::string refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  static void overwrite(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  fs::path out;
};

TEST_F(Keep, ACheckpointIsWholeUntilAByteChangesOrAFileIsMissing) {
  const fs::path path = save(8);
  EXPECT_EQ(inspect(path).damage, "");
  EXPECT_TRUE(inspect(path).checksums);
  overwrite(path / "model.safetensors", "wejghts");
  EXPECT_NE(inspect(path).damage.find("model.safetensors is damaged"), std::string::npos);
  overwrite(path / "model.safetensors", "weight");
  EXPECT_NE(inspect(path).damage.find("6 bytes, expected 7"), std::string::npos);
  fs::remove(path / "model.safetensors");
  EXPECT_NE(inspect(path).damage.find("model.safetensors"), std::string::npos);
  overwrite(path / "checksums.json", "{\"model.safeten");
  EXPECT_NE(inspect(path).damage.find("checksums.json is damaged"), std::string::npos);
}

TEST_F(Keep, EverythingThatIsWrongWithACheckpointIsSaid) {
  const fs::path path = save(8);
  overwrite(path / "model.safetensors", "");
  overwrite(path / "state.json", "{");
  const std::string damage = inspect(path).damage;
  for (const char* part : {"model.safetensors has 0 bytes", "state.json has 1 bytes", "not JSON"})
    EXPECT_NE(damage.find(part), std::string::npos) << damage;
}

// Workers share the reading: one of the parts finds it.
TEST_F(Keep, EveryFileIsInOnePart) {
  const fs::path path = save(8);
  overwrite(path / "model.safetensors", "wejghts");
  for (const int parts : {1, 2, 3, 5}) {
    int found = 0;
    for (int part = 0; part < parts; ++part) found += inspect(path, part, parts).whole() ? 0 : 1;
    EXPECT_EQ(found, 1) << parts;
  }
}

TEST_F(Keep, ACheckpointOfAnOlderVersionHasNoChecksumsAndIsTaken) {
  const fs::path path = save(8);
  fs::remove(path / "checksums.json");
  EXPECT_TRUE(inspect(path).whole());
  EXPECT_FALSE(inspect(path).checksums);
}

TEST_F(Keep, EveryEntryOfTheStateIsChecked) {
  const fs::path path = save(8);
  const auto whole = nlohmann::json::parse(std::ifstream(path / "state.json"));
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = whole;
    changed[key] = value;
    overwrite(path / "state.json", changed.dump());
    const std::string why = refusal([&] { read_state(path); });
    EXPECT_NE(why.find("state.json"), std::string::npos) << key << value << why;
    EXPECT_NE(why.find(key), std::string::npos) << key << value << why;
  };
  for (const char* key : {"samples", "steps", "reference", "epoch", "offset", "next_block"})
    for (const auto& value : {nlohmann::json(-5), nlohmann::json(1.5), nlohmann::json("8"),
                              nlohmann::json(), nlohmann::json(1ull << 63)})
      refused(key, value);
  refused("workers", 0);
  refused("returned_blocks", {1, -1});
  refused("identity", {{"seed", 3}});
  refused("order", "fc.weight");
  refused("ordered", 1);
  refused("values", {{"epoch", 3}});
  for (const char* text : {"", "{", "[]", "{}"}) {
    overwrite(path / "state.json", text);
    EXPECT_NE(refusal([&] { read_state(path); }).find("state.json"), std::string::npos) << text;
  }
}

TEST_F(Keep, AFolderThatHoldsARunIsRefusedUnlessItIsContinuedOrMayBeRemoved) {
  EXPECT_EQ(refusal([&] { check_may_write(out, "", false); }), "") << "an empty folder";
  fs::create_directories(out / "logs");
  overwrite(out / "logs/rank-1.log", "could not start");
  overwrite(out / "notes.txt", "mine");
  EXPECT_EQ(refusal([&] { check_may_write(out, "", false); }), "") << "only logs and notes";
  start();
  save(8);
  const std::string why = refusal([&] { check_may_write(out, "", false); });
  for (const char* part : {"00000000000000aa", "8 samples", "--resume", "--overwrite"})
    EXPECT_NE(why.find(part), std::string::npos) << part << why;
  EXPECT_EQ(refusal([&] { check_may_write(out, out, false); }), "");
  EXPECT_EQ(refusal([&] { check_may_write(out / ".", out / "checkpoints/8", false); }), "");
  EXPECT_EQ(refusal([&] { check_may_write(out, "", true); }), "");
  EXPECT_NE(refusal([&] { check_may_write(out, out, true); }), "") << "which of the two?";
  const fs::path other = out / "other";
  fs::create_directories(other);
  EXPECT_NE(refusal([&] { check_may_write(out, other, false); }), "") << "another run's";
  EXPECT_EQ(refusal([&] { check_may_write(other, out, false); }), "") << "into a new folder";
}

// As versions without run.json left it.
TEST_F(Keep, AFolderOfAnOlderVersionHoldsARunToo) {
  overwrite(out / "metrics.jsonl", "{\"kind\":\"step\"}\n");
  EXPECT_NE(refusal([&] { check_may_write(out, "", false); }), "");
  EXPECT_EQ(read_run(out).id, "");
}

TEST_F(Keep, ARunThatGoesOnHasItsFolderForItself) {
  {
    const FileDescriptor taken = take_folder(out, {run_id(1), utc_now(), "", "0.1", "{}"});
    EXPECT_NE(refusal([&] { check_may_write(out, out, false); }).find("now"), std::string::npos);
    EXPECT_NE(refusal([&] { check_may_write(out, "", true); }).find("now"), std::string::npos);
  }
  EXPECT_EQ(refusal([&] { check_may_write(out, out, false); }), "");
}

TEST_F(Keep, RemovingARunLeavesWhatIsNotItsOwn) {
  start();
  save(8);
  fs::create_directories(out / "checkpoints/unfinished-16");
  fs::create_directories(out / "checkpoints/best");
  fs::create_directories(out / "logs/earlier-1");
  for (const char* mine : {"notes.txt", "checkpoints/best/notes.txt", "logs/notes.txt"})
    overwrite(out / mine, "mine");
  for (const char* its : {"metrics.jsonl", "model.safetensors", "model.safetensors.tmp-12",
                          "logs/rank-0.log", "logs/earlier-1/rank-12.log"})
    overwrite(out / its, "its");
  remove_run(out);
  remove_logs(out);
  EXPECT_FALSE(holds_run(out));
  EXPECT_FALSE(fs::exists(out / "logs/earlier-1"));
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(out))
    if (entry.is_regular_file()) left.push_back(fs::relative(entry.path(), out).string());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"checkpoints/best/notes.txt", "logs/notes.txt",
                                            "notes.txt"}));
}

TEST_F(Keep, CheckpointsBeyondTheOneThatIsResumedAreSetAside) {
  for (const std::int64_t samples : {8, 16, 24, 100}) save(samples);
  EXPECT_EQ(set_aside_later(out / "checkpoints", 16), (std::vector<std::string>{"24", "100"}));
  EXPECT_EQ(checkpoints_in(out).size(), 2u);
  EXPECT_TRUE(inspect(out / "checkpoints/set-aside-100").whole());
  remove_older(out / "checkpoints", 1);
  ASSERT_EQ(checkpoints_in(out).size(), 1u);
  EXPECT_EQ(samples_of(checkpoints_in(out).front()), 16);
}

TEST_F(Keep, APublishedFolderReplacesTheOldOne) {
  for (const char* text : {"old", "new"}) {
    fs::create_directories(out / "checkpoints/unfinished-8");
    overwrite(out / "checkpoints/unfinished-8/state.json", text);
    publish_folder(out / "checkpoints/unfinished-8", out / "checkpoints/8");
  }
  std::string text;
  std::ifstream(out / "checkpoints/8/state.json") >> text;
  EXPECT_EQ(text, "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(out / "checkpoints"), {}), 1);
}

// Three workers write a part each.
class Parts : public Keep {
 protected:
  void write_part(int rank) {
    CheckpointState state;
    state.samples = 8;
    state.workers = 3;
    const std::string name =
        rank == 0 ? "state.json" : "rank-" + std::to_string(rank) + ".safetensors";
    const std::string text = rank == 0 ? print_state(state) : "own";
    parts.done(rank, {{name, write_whole(parts.path() / name, text)}});
  }
  void publish(Duration silence, bool without_the_lost = false) {
    parts.publish({0, 1, 2}, {silence, &hurry, without_the_lost}, 1);
  }
  std::string failure(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const UnfinishedCheckpoint parts{out, "8"};
  std::atomic<bool> hurry = false;
};

TEST_F(Parts, AreWaitedForAndBecomeACheckpointTogether) {
  parts.begin();
  write_part(1);
  BackgroundWriter others;
  others.start([this] {
    write_part(2);
    write_part(0);
  });
  publish(std::chrono::seconds(20));
  EXPECT_TRUE(others.wait_for(std::chrono::seconds(20)));
  EXPECT_EQ(others.take_error(), "");
  EXPECT_TRUE(inspect(parts.published()).whole()) << inspect(parts.published()).damage;
  EXPECT_EQ(read_state(parts.published()).samples, 8);
  EXPECT_EQ(numbered_in(out).size(), 1u);
  EXPECT_FALSE(fs::exists(parts.path()));
  EXPECT_FALSE(fs::exists(parts.published() / "rank-1.done"));
}

TEST_F(Parts, OneThatFailsOrIsMissingIsNamedAndNothingAppears) {
  parts.begin();
  write_part(0);
  write_part(1);
  EXPECT_NE(failure([&] { publish(std::chrono::milliseconds(1)); }).find("no part of rank 2"),
            std::string::npos);
  hurry = true;
  EXPECT_NE(failure([&] { publish(std::chrono::milliseconds(1)); }), "");
  parts.failed(2, "cannot write: the disk is full");
  EXPECT_NE(failure([&] { publish(std::chrono::seconds(20)); }).find("rank 2: cannot write"),
            std::string::npos);
  EXPECT_TRUE(numbered_in(out).empty());
}

// One that died after its file was written, and before it said so.
TEST_F(Parts, WhoIsLostIsLeftOutWhereOthersGoOn) {
  parts.begin();
  write_part(0);
  write_part(1);
  overwrite(parts.path() / "rank-2.safetensors.tmp-12", "half");
  publish(std::chrono::milliseconds(1), /*without_the_lost=*/true);
  EXPECT_TRUE(inspect(parts.published()).whole());
  EXPECT_TRUE(fs::exists(parts.published() / "rank-1.safetensors"));
  EXPECT_FALSE(fs::exists(parts.published() / "rank-2.safetensors.tmp-12"));
}

TEST_F(Parts, WhatADeadRunLeftIsRemovedFirst) {
  fs::create_directories(out / "unfinished-4");
  overwrite(out / "unfinished-4/rank-1.done", "{}");
  parts.begin();
  EXPECT_FALSE(fs::exists(out / "unfinished-4"));
  EXPECT_TRUE(fs::is_empty(parts.path()));
}

TEST(BackgroundWriterTest, DoesOneJobAfterTheOtherAndTellsWhatWentWrong) {
  BackgroundWriter writer;
  EXPECT_TRUE(writer.wait_for(Duration(0)));
  std::atomic<bool> go = false;
  writer.start([&] {
    while (!go) std::this_thread::yield();
    throw Error("the disk is full");
  });
  EXPECT_FALSE(writer.wait_for(Duration(0)));
  go = true;
  EXPECT_TRUE(writer.wait_for(std::chrono::seconds(20)));
  EXPECT_EQ(writer.take_error(), "the disk is full");
  EXPECT_EQ(writer.take_error(), "");
  int done = 0;
  {
    BackgroundWriter other;
    other.start([&] { done = 1; });
  }
  EXPECT_EQ(done, 1) << "its end waits";
}

TEST(ResumedTest, NumbersAreWholeOrRefused) {
  Resumed resumed;
  EXPECT_FALSE(resumed);
  EXPECT_EQ(resumed.number("epoch", 3), 3);
  resumed.path = "checkpoints/8";
  resumed.values = {{"epoch", "9223372036854775807"}, {"rate", "0.1"}};
  EXPECT_TRUE(resumed);
  EXPECT_EQ(resumed.number("epoch"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(resumed.text("rate"), "0.1");
  EXPECT_THROW(resumed.number("rate"), ConfigError);
}

}  // namespace
}  // namespace skein
