// What a run keeps in its folder, without the run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
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
    write_run(out, run);
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
  for (const char* part :
       {"model.safetensors has 0 bytes", "state.json is damaged: it is not JSON"})
    EXPECT_NE(damage.find(part), std::string::npos) << damage;
}

TEST_F(Keep, WhatIsWrongWithAFileIsSaidOnceAndInOurWords) {
  const fs::path path = save(8);
  for (const char* text : {"", "{", "[1, 2", "\xff\xfe", "null", "{\"samples\": -5}"}) {
    overwrite(path / "state.json", text);
    const std::string damage = inspect(path).damage;
    EXPECT_EQ(damage.find("json.exception"), std::string::npos) << damage;
    const auto named = damage.find("state.json");
    EXPECT_NE(named, std::string::npos) << text;
    EXPECT_EQ(damage.find("state.json", named + 1), std::string::npos) << damage;
  }
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

// There one number was the samples that weigh 1 in an average or, under abs, those of the first
// round: it is taken for the first, which is right for all strategies but abs, and does abs no
// harm.
TEST_F(Keep, ACheckpointOfAnOlderVersionHasOneReference) {
  const fs::path path = save(8);
  auto json = nlohmann::json::parse(std::ifstream(path / "state.json"));
  json["reference"] = 32;
  json["round_reference"] = 96;
  overwrite(path / "state.json", json.dump());
  EXPECT_EQ(read_state(path).batch_reference, 32);
  EXPECT_EQ(read_state(path).round_reference, 96);
  json.erase("round_reference");
  overwrite(path / "state.json", json.dump());
  EXPECT_EQ(read_state(path).batch_reference, 32);
  EXPECT_EQ(read_state(path).round_reference, 0);
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
  for (const char* key :
       {"samples", "steps", "reference", "round_reference", "epoch", "offset", "next_block"})
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

TEST_F(Keep, AFolderThatIsTakenRefusesOthersAndNamesWhoHasIt) {
  {
    FolderLock taken = take_folder(out, run_lock(out));
    EXPECT_TRUE(taken.leads());
    EXPECT_EQ(taken.missing(), "");
    taken.name("00000000000000aa");
    EXPECT_TRUE(written_now(out));
    for (const auto& attempt : {std::function<void()>([&] { check_may_write(out, out, false); }),
                                std::function<void()>([&] { check_may_write(out, "", true); }),
                                std::function<void()>([&] { take_folder(out, run_lock(out)); })}) {
      const std::string why = refusal(attempt);
      for (const std::string& part :
           {std::string("writing there now"), "process " + std::to_string(::getpid()),
            std::string("on host "), utc_now().substr(0, 10)})
        EXPECT_NE(why.find(part), std::string::npos) << part << " in " << why;
    }
    const auto holder = holder_of(run_lock(out));
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->run, "00000000000000aa");
  }
  EXPECT_FALSE(written_now(out));
  EXPECT_EQ(refusal([&] { check_may_write(out, out, false); }), "");
  EXPECT_EQ(refusal([&] { take_folder(out, run_lock(out)); }), "");
}

TEST_F(Keep, AFolderStaysTakenWhileAWorkerOfTheRunLives) {
  std::optional<FolderLock> first(std::in_place), second(std::in_place);
  EXPECT_FALSE(first->take(run_lock(out), "one"));
  second->join(run_lock(out));
  EXPECT_FALSE(second->leads());
  FolderLock other;
  EXPECT_TRUE(other.take(run_lock(out), "two"));
  first.reset();  // the leader is lost
  const auto holder = other.take(run_lock(out), "two");
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->run, "one");
  second->lead("one");
  EXPECT_TRUE(second->leads());
  EXPECT_TRUE(other.take(run_lock(out), "two"));
  second.reset();
  EXPECT_FALSE(other.take(run_lock(out), "two"));
  EXPECT_EQ(holder_of(run_lock(out))->run, "two");
}

// It may be stopped only, and hold its lock still.
TEST_F(Keep, ANewLeaderGoesOnBesideTheOneThatWasLeftBehind) {
  FolderLock first, second, other;
  EXPECT_FALSE(first.take(run_lock(out), "one"));
  second.join(run_lock(out));
  second.lead("one");
  EXPECT_TRUE(second.leads());
  EXPECT_TRUE(other.take(run_lock(out), "two"));
}

// A file server keeps the lock of a host that has lost its power, and a worker in uninterruptible
// sleep does not end.
TEST_F(Keep, ARestartLeadsBesideAWorkerOfItsRunThatWasLeftBehind) {
  start();
  FolderLock left, other;
  ASSERT_FALSE(left.take(run_lock(out), run_id(0xaa)));
  FolderLock lock = join_left_behind(out, *holder_of(run_lock(out)));
  EXPECT_TRUE(lock.leads());
  left = FolderLock();
  EXPECT_TRUE(other.take(run_lock(out), "another")) << "it is the restarted run's now";

  for (const std::string stranger : {"", "00000000000000bb"}) {
    lock = FolderLock();
    ASSERT_FALSE(other.take(run_lock(out), stranger));
    try {
      join_left_behind(out, *holder_of(run_lock(out)));
      ADD_FAILURE() << "joins run '" << stranger << "'";
    } catch (const ConfigError& error) {
      ADD_FAILURE() << "which would end the restarts: " << error.what();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("another one is writing there now (process "),
                std::string::npos)
          << error.what();
    }
    other = FolderLock();
  }
}

TEST_F(Keep, ALockOfAKilledProcessIsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    FolderLock lock;
    const bool taken = !lock.take(run_lock(out), "one");
    const char said = taken ? 'y' : 'n';
    if (::write(ready[1], &said, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_TRUE(written_now(out));
  EXPECT_NE(refusal([&] {
              take_folder(out, run_lock(out));
            }).find("process " + std::to_string(child) + " on"),
            std::string::npos);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(written_now(out));
  EXPECT_EQ(refusal([&] { take_folder(out, run_lock(out)); }), "");
  ::close(ready[0]);
  ::close(ready[1]);
}

// As between the taking of the lock and the writing of the name.
TEST_F(Keep, AHolderThatHasNotWrittenItsNameYetIsWaitedFor) {
  FolderLock held, other;
  for (const char* text :
       {"", R"({"run": "before", "host": "HOST", "pid": 1073741824, "since": "x"})"}) {
    held = FolderLock();
    ASSERT_FALSE(held.take(run_lock(out), "one"));
    std::string before = text;
    char host[256] = {};
    ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
    if (const auto at = before.find("HOST"); at != std::string::npos) before.replace(at, 4, host);
    overwrite(run_lock(out), before);
    std::thread naming([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      held.name("one");
    });
    const auto holder = other.take(run_lock(out), "two");
    naming.join();
    ASSERT_TRUE(holder);
    EXPECT_EQ(holder->run, "one") << "instead of '" << before << "'";
    EXPECT_EQ(holder->pid, ::getpid());
  }
}

// Names of different lengths replace each other, and no reader finds none.
TEST_F(Keep, ALockFileNamesItsHolderAtEveryMoment) {
  FolderLock held;
  ASSERT_FALSE(held.take(run_lock(out), "run 0"));
  std::atomic<bool> ended = false;
  std::thread naming([&] {
    for (int i = 0; i < 300; ++i) held.name("run " + std::string(i % 7, '1'));
    ended = true;
  });
  int unnamed = 0;
  while (!ended) {
    std::ifstream in(run_lock(out));
    std::string text;
    std::getline(in, text, '\0');
    if (text.find("\"run\":\"run ") == std::string::npos) ++unnamed;
  }
  naming.join();
  EXPECT_EQ(unnamed, 0);
}

// As another user, or where a mount is read-only.
TEST_F(Keep, AHolderIsFoundByWhoeverMayOnlyRead) {
  FolderLock held;
  ASSERT_FALSE(held.take(run_lock(out), "one"));
  fs::permissions(run_lock(out), fs::perms(0444));
  fs::permissions(out, fs::perms(0755));
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(3);
    const auto holder = holder_of(run_lock(out));
    ::_exit(written_now(out) && holder && holder->run == "one" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
    parts.done(rank, {{name, write_whole(checkpoint.path() / name, text)}});
  }
  void publish(bool without_the_lost = false) {
    checkpoint.publish(parts.wait(hurry, without_the_lost), 1);
  }
  std::string failure(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const UnfinishedCheckpoint checkpoint{out, "8"};
  CheckpointParts parts{{0, 1, 2}};
  std::atomic<bool> hurry = false;
};

TEST_F(Parts, BecomeACheckpointWhenAllHaveBeenReported) {
  checkpoint.begin();
  write_part(1);
  BackgroundWriter others;
  others.start([this] {
    write_part(2);
    write_part(0);
  });
  publish();
  EXPECT_TRUE(others.wait_for(std::chrono::seconds(600)));
  EXPECT_EQ(others.take_error(), "");
  EXPECT_TRUE(inspect(checkpoint.published()).whole()) << inspect(checkpoint.published()).damage;
  EXPECT_EQ(read_state(checkpoint.published()).samples, 8);
  EXPECT_EQ(numbered_in(out).size(), 1u);
  EXPECT_FALSE(fs::exists(checkpoint.path()));
}

// A folder on a network may show its listing as it was: only what was reported counts.
TEST_F(Parts, AreNotLookedForInTheFolder) {
  checkpoint.begin();
  write_part(0);
  write_part(1);
  overwrite(checkpoint.path() / "rank-2.safetensors", "own");
  hurry = true;
  EXPECT_NE(failure([&] { publish(); }).find("no part of rank 2"), std::string::npos);
  EXPECT_TRUE(numbered_in(out).empty());
}

TEST_F(Parts, ThatFailOrAreLostAreNamedAndNothingAppears) {
  checkpoint.begin();
  write_part(0);
  write_part(1);
  parts.failed(2, "cannot write 'x': no space");
  parts.lost(2, "this is said too late to count");
  EXPECT_EQ(failure([&] { publish(); }), "rank 2: cannot write 'x': no space");
  EXPECT_NE(failure([&] { publish(/*without_the_lost=*/true); }), "")
      << "a full disk is no loss of a worker";
  CheckpointParts others{{0, 3}};
  others.done(0, {});
  others.lost(3, "rank 3 has gone");
  EXPECT_EQ(failure([&] { others.wait(hurry, false); }), "no part of rank 3: rank 3 has gone");
  EXPECT_TRUE(numbered_in(out).empty());
}

// One that died after its file was written, and before it said so.
TEST_F(Parts, OfALostWorkerAreLeftOutWhereOthersGoOn) {
  checkpoint.begin();
  write_part(0);
  write_part(1);
  overwrite(checkpoint.path() / "rank-2.safetensors.tmp-12", "half");
  parts.lost(2, "it was killed");
  publish(/*without_the_lost=*/true);
  EXPECT_TRUE(inspect(checkpoint.published()).whole());
  EXPECT_TRUE(fs::exists(checkpoint.published() / "rank-1.safetensors"));
  EXPECT_FALSE(fs::exists(checkpoint.published() / "rank-2.safetensors.tmp-12"));
}

TEST_F(Parts, OfADeadRunAreRemovedFirst) {
  fs::create_directories(out / "unfinished-4");
  overwrite(out / "unfinished-4/rank-1.safetensors", "half");
  checkpoint.begin();
  EXPECT_FALSE(fs::exists(out / "unfinished-4"));
  EXPECT_TRUE(fs::is_empty(checkpoint.path()));
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
  EXPECT_TRUE(writer.wait_for(std::chrono::seconds(600)));
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
