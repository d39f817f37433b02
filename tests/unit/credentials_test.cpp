// Which secret or certificates a worker shows.
#include "runtime/credentials.h"

#include <gtest/gtest.h>

#include <map>

#include "skein/error.h"

namespace skein {
namespace {

using Variables = std::map<std::string, std::string>;

Credentials find(const Credentials& given, const Variables& variables = {}) {
  return find_credentials(given, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Credentials& given, const Variables& variables = {}) {
  try {
    find(given, variables);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

const Variables kCertificates{
    {"SKEIN_TLS_CERT", "cert"}, {"SKEIN_TLS_KEY", "key"}, {"SKEIN_TLS_CA", "ca"}};

TEST(Credentials, AreThoseOfTheOptionsOrElseOfTheEnvironment) {
  EXPECT_EQ(find({}).secret, "");
  EXPECT_FALSE(find({}).certificates());
  EXPECT_EQ(find({}, {{"SKEIN_SECRET_FILE", "there"}}).secret, "there");
  EXPECT_EQ(find({"here", "", "", ""}, {{"SKEIN_SECRET_FILE", "there"}}).secret, "here");
  const Credentials around = find({}, kCertificates);
  EXPECT_TRUE(around.certificates());
  EXPECT_EQ(around.cert + around.key + around.ca, "certkeyca");
  const Credentials mixed = find({"", "mine", "", ""}, kCertificates);
  EXPECT_EQ(mixed.cert + mixed.key + mixed.ca, "minekeyca");
}

TEST(Credentials, OptionsOfOneKindWinOverTheOtherInTheEnvironment) {
  const Credentials secret = find({"here", "", "", ""}, kCertificates);
  EXPECT_EQ(secret.secret, "here");
  EXPECT_FALSE(secret.certificates());
  const Credentials shown = find({"", "c", "k", "a"}, {{"SKEIN_SECRET_FILE", "there"}});
  EXPECT_TRUE(shown.certificates());
  EXPECT_EQ(shown.secret, "");
}

TEST(Credentials, CertificatesNeedAllThreeFiles) {
  EXPECT_NE(refusal({"", "c", "", "a"}).find("expected --tls-key (or SKEIN_TLS_KEY) too"),
            std::string::npos);
  EXPECT_NE(refusal({"", "", "k", ""}).find("--tls-cert (or SKEIN_TLS_CERT) and --tls-ca"),
            std::string::npos);
  EXPECT_NE(refusal({}, {{"SKEIN_TLS_CA", "a"}}).find("--tls-cert (or SKEIN_TLS_CERT)"),
            std::string::npos);
}

TEST(Credentials, BothKindsAtOnceAreRefused) {
  EXPECT_EQ(refusal({"s", "", "k", ""}),
            "--secret and --tls-key: workers show a secret or certificates, not both");
  Variables both = kCertificates;
  both["SKEIN_SECRET_FILE"] = "s";
  EXPECT_EQ(
      refusal({}, both),
      "SKEIN_SECRET_FILE and SKEIN_TLS_CERT: workers show a secret or certificates, not both");
}

}  // namespace
}  // namespace skein
