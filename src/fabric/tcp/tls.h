// TLS 1.3 in which both sides show that they belong to the run, and nothing else counts: that they
// know its key, or that they have a certificate which the other trusts.
//
// The run's key is an external pre-shared key. Either way each connection agrees on keys of its own
// (ECDHE), so that who learns a secret later cannot read what was sent.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "fabric/tcp/certificates.h"
#include "fabric/tcp/intake.h"
#include "fabric/tcp/secret.h"

namespace skein::tcp {

struct SslFree {
  void operator()(SSL* ssl) const { ::SSL_free(ssl); }
};
struct ContextFree {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};
struct MethodFree {
  void operator()(BIO_METHOD* method) const { ::BIO_meth_free(method); }
};
using Session = std::unique_ptr<SSL, SslFree>;

enum class Side { accepts, connects };

using Proof = std::variant<Key, CertificateFiles>;

class Tls {
 public:
  // Throws ConfigError for certificates that are not to be used.
  explicit Tls(const Proof& proof);
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // A session that reads from `in` and appends what is to be sent to `out`. Both, and this object,
  // outlive it. It takes no more from `in` than it has use for.
  Session begin(Side side, Intake& in, std::vector<char>& out) const;

  // Whether the handshake has ended and the other side has shown what it must.
  bool authenticated(const SSL& session) const;

  // Why the last call of this thread for `session` failed, in words that others may read. OpenSSL
  // forgets it.
  std::string trouble(const SSL& session) const;

  // For sentences: "whoever is there does not have …", "they did not …".
  const char* what_is_shown() const;
  const char* what_strangers_lack() const;

 private:
  bool by_key() const { return std::holds_alternative<Key>(proof_); }

  const Proof proof_;
  std::unique_ptr<SSL_CTX, ContextFree> context_;
  std::unique_ptr<BIO_METHOD, MethodFree> from_intake_, into_vector_;
};

// Whether the last error of this thread is something that the other side has said.
bool told_by_the_other_side();

// What OpenSSL has to say about the last error of this thread, and forgets.
std::string tls_error();

}  // namespace skein::tcp
