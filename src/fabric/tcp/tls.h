// TLS 1.3 in which both sides show that they know the run's key, and nothing else counts.
//
// The key is an external pre-shared key; each connection also agrees on keys of its own (ECDHE), so
// that who learns the secret later cannot read what was sent. There are no certificates.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "fabric/tcp/secret.h"

namespace skein::tcp {

struct SslFree {
  void operator()(SSL* ssl) const { ::SSL_free(ssl); }
};
using Session = std::unique_ptr<SSL, SslFree>;

enum class Side { accepts, connects };

class Tls {
 public:
  // `read_ahead`: takes in more than a record at once. Not for a connection that goes on in clear.
  Tls(const Key& key, bool read_ahead);
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  ~Tls();

  // A session that reads from `socket` and appends what is to be sent to `out`. Both, and this
  // object, outlive it.
  Session begin(int socket, Side side, std::vector<char>& out) const;

 private:
  Key key_;
  SSL_CTX* context_ = nullptr;
  BIO_METHOD* into_vector_ = nullptr;
};

// Whether the handshake has ended with both sides knowing the key.
bool authenticated(const SSL& session);

// What OpenSSL has to say about the last error of this thread, and forgets.
std::string tls_error();

}  // namespace skein::tcp
