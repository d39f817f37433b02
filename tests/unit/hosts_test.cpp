// Hosts as users name them, and what a launcher and the agent of a host say to each other.
#include "launch/hosts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/rng.h"
#include "launch/agent_messages.h"
#include "skein/error.h"

namespace skein {
namespace {

std::string refusal(const std::string& list) {
  try {
    parse_hosts(list, 256);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Hosts, AreTakenInTheirOrderWithTheirWorkers) {
  const auto hosts = parse_hosts("a,me@b.example:4,10.0.0.7,[fe80::1%eth0]:2", 256);
  ASSERT_EQ(hosts.size(), 4u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[1].name, "me@b.example");
  EXPECT_EQ(hosts[1].address(), "b.example");
  EXPECT_EQ(hosts[1].workers, 4);
  EXPECT_EQ(hosts[3].name, "fe80::1%eth0");
  EXPECT_EQ(hosts[3].workers, 2);
  EXPECT_EQ(total_workers(hosts), 8);
  EXPECT_EQ(join_host_port(hosts[0].address(), 29500), "a:29500");
  EXPECT_EQ(join_host_port("fe80::1", 29500), "[fe80::1]:29500");
}

TEST(Hosts, ThatAreNoneAreRefused) {
  for (const char* list : {",", "a,", "-oProxyCommand=x", "a,-b", "me@-b", "-me@b", "a b", "a;b",
                           "$(b)", "a\nb", "a/b", "[]", "[-1::2]", "fe80::1", "@b", "a@", ".a"})
    EXPECT_NE(refusal(list).find("is no host"), std::string::npos) << list << refusal(list);
  for (const char* list : {"b:0", "b:99999", "b:-1", "b:x", "b:", "b:1.5", "b:257"})
    EXPECT_NE(refusal(list).find("from 1 to 256"), std::string::npos) << list << refusal(list);
  EXPECT_NE(refusal("").find("no hosts"), std::string::npos);
  EXPECT_NE(refusal("a,b,a:2").find("'a' is there twice"), std::string::npos);
  EXPECT_NE(refusal(std::string(300, 'a')).find("is no host"), std::string::npos);
}

TEST(Hosts, OfAFileAreReadWithTheirLines) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "skein-hosts-test";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("# ours\na\n\nb 4 # the large one\n");
  const auto hosts = read_host_file(path, 256);
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[1].workers, 4);
  write("a\nb 0\n");
  try {
    read_host_file(path, 256);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(":2: host 'b' with '0' workers"), std::string::npos)
        << error.what();
  }
  std::filesystem::remove(path);
  EXPECT_THROW(read_host_file(path, 256), ConfigError);
}

StartOrder an_order() {
  StartOrder order;
  order.folder = "/home/me";
  order.own_program = true;
  order.plan.argv = {"skein", "train", std::string("\xff\0x", 3)};
  order.plan.environment = {{"A", "1"}, {"B", ""}};
  order.plan.first_rank = 2;
  order.plan.workers = 3;
  order.plan.size = 5;
  order.plan.run_id = "c0ffee";
  order.plan.rendezvous = "a:29500";
  order.plan.secret = std::string(32, '\0');
  return order;
}

TEST(AgentMessages, ArriveAsTheyWereSentByteByByte) {
  const StartOrder sent = an_order();
  FrameReader reader;
  std::optional<Message> message;
  for (const char byte : frame(MessageKind::start, encode(sent))) {
    EXPECT_FALSE(message);
    reader.add({&byte, 1});
    message = reader.next();
  }
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, MessageKind::start);
  const StartOrder order = decode_start(message->body);
  EXPECT_EQ(order.folder, sent.folder);
  EXPECT_TRUE(order.own_program);
  EXPECT_EQ(order.plan.argv, sent.plan.argv);
  EXPECT_EQ(order.plan.environment, sent.plan.environment);
  EXPECT_EQ(order.plan.first_rank, 2);
  EXPECT_EQ(order.plan.size, 5);
  EXPECT_EQ(order.plan.secret, sent.plan.secret);
}

TEST(AgentMessages, ThatAreCutShortOrTooLongAreRefused) {
  const std::string body = encode(an_order());
  for (std::size_t length = 0; length < body.size(); ++length)
    EXPECT_THROW(decode_start(std::string_view(body).substr(0, length)), IoError) << length;
  EXPECT_THROW(decode_start(body + "x"), IoError);
  FrameReader unknown, large;
  unknown.add("Welcome to this host");
  EXPECT_THROW(unknown.next(), IoError);
  large.add(std::string("\x02\xff\xff\xff\xff", 5));
  EXPECT_THROW(large.next(), IoError);
  EXPECT_THROW(frame(MessageKind::start, std::string(kMostBody + 1, 'x')), ConfigError);
}

// Whatever comes is understood or refused.
TEST(AgentMessages, ThatAreGarbledDoNoHarm) {
  Rng random(7);
  const std::vector<std::string> bodies{encode(an_order()),           encode(HoldOrder{"a", true}),
                                        encode(Output{1, true, "x"}), encode(RecordNews{}, Time()),
                                        encode(EndNews{2, {}}),       encode_number(7)};
  int refused = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string body = bodies[random() % bodies.size()];
    for (auto changes = random() % 4; changes > 0; --changes)
      body[random() % body.size()] = static_cast<char>(random());
    if (random() % 4 == 0) body.resize(random() % body.size());
    try {
      switch (random() % 6) {
        case 0:
          decode_start(body);
          break;
        case 1:
          decode_hold(body);
          break;
        case 2:
          decode_output(body);
          break;
        case 3:
          decode_record(body, Time());
          break;
        case 4:
          decode_end(body);
          break;
        default:
          decode_number(body);
      }
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 30000);
  EXPECT_LT(refused, 60000);
}

TEST(AgentMessages, TellOfTimesByTheirAge) {
  RecordNews news;
  news.rank = 3;
  news.record.pid = 7;
  news.record.phase = Phase::failed;
  news.record.failure = "no more tea";
  news.record.failed_at = Time(Duration(900));
  const RecordNews told = decode_record(encode(news, Time(Duration(1000))), Time(Duration(5000)));
  EXPECT_EQ(told.record.failed_at, Time(Duration(4900)));
  EXPECT_EQ(told.record.failure, "no more tea");
  EXPECT_EQ(told.record.lost_peer, -1);
}

TEST(AgentMessages, AGreetingNamesTheVersion) {
  EXPECT_EQ(greeted_by(greeting()), agent_version());
  EXPECT_FALSE(greeted_by("Welcome"));
  EXPECT_EQ(greeted_by("skein agent, protocol 9, version 7"), "(protocol 9, version 7)");
}

}  // namespace
}  // namespace skein
