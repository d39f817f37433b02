// An authority of a test, and certificates that it signs, in files that go with it.
#pragma once

#include <openssl/x509.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "fabric/tcp/certificates.h"

namespace skein {

struct CertificateKind {
  std::chrono::seconds from{-3600}, to{3600};  // from now
  std::string use = "serverAuth,clientAuth";   // extended key usage
  bool self_signed = false;                    // by its own key
};

class TestAuthority {
 public:
  TestAuthority();
  explicit TestAuthority(const TestAuthority& above, const CertificateKind& kind);  // signed by it
  TestAuthority(TestAuthority&&) = delete;
  ~TestAuthority();

  // A certificate with a key of its own; whoever has it trusts this authority, or the one above.
  tcp::CertificateFiles issue(const CertificateKind& kind = {}) const;

  std::string file() const;  // the certificate of the authority that others trust
  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { ::X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  Certificate sign(EVP_PKEY& key, const CertificateKind& kind, bool authority) const;

  std::filesystem::path folder_;
  const TestAuthority* above_ = nullptr;
  Key key_;
  Certificate certificate_;
  mutable long issued_ = 0;
};

}  // namespace skein
