#include "fabric/tcp/tls.h"

#include <openssl/err.h>

#include <cstring>

#include "core/check.h"

namespace skein::tcp {
namespace {

constexpr char kIdentity[] = "skein";
constexpr std::size_t kReadAhead = std::size_t{128} * 1024;
const unsigned char kAes128GcmSha256[] = {0x13, 0x01};

// The key as the session that a pre-shared key is to OpenSSL; null when there is no memory.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* key = static_cast<const Key*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, kAes128GcmSha256);
  SSL_SESSION* session = ::SSL_SESSION_new();
  if (session && cipher && ::SSL_SESSION_set1_master_key(session, key->data(), key->size()) == 1 &&
      ::SSL_SESSION_set_cipher(session, cipher) == 1 &&
      ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  ::SSL_SESSION_free(session);
  return nullptr;
}

int offer_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
              SSL_SESSION** session) {
  *session = nullptr;
  if (digest && ::EVP_MD_get_type(digest) != NID_sha256) return 1;
  *session = session_of(ssl);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity);
  *length = sizeof(kIdentity) - 1;
  return *session ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  *session = nullptr;
  if (length != sizeof(kIdentity) - 1 || std::memcmp(identity, kIdentity, length) != 0) return 1;
  *session = session_of(ssl);
  return *session ? 1 : 0;
}

int append(BIO* bio, const char* data, std::size_t bytes, std::size_t* written) {
  auto& out = *static_cast<std::vector<char>*>(::BIO_get_data(bio));
  out.insert(out.end(), data, data + bytes);
  *written = bytes;
  return 1;
}

long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

}  // namespace

Tls::Tls(const Key& key, bool read_ahead)
    : key_(key),
      context_(::SSL_CTX_new(::TLS_method())),
      into_vector_(::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "vector")) {
  SKEIN_CHECK(context_ && into_vector_, "OpenSSL: {}", tls_error());
  ::BIO_meth_set_write_ex(into_vector_, append);
  ::BIO_meth_set_ctrl(into_vector_, control);
  SSL_CTX_set_app_data(context_, &key_);
  SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
  SKEIN_CHECK(::SSL_CTX_set_ciphersuites(
                  context_, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1,
              "OpenSSL: {}", tls_error());
  SSL_CTX_set_options(context_, SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_num_tickets(context_, 0);
  ::SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_psk_use_session_callback(context_, offer_key);
  ::SSL_CTX_set_psk_find_session_callback(context_, find_key);
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS);
  if (read_ahead) {
    SSL_CTX_set_read_ahead(context_, 1);
    ::SSL_CTX_set_default_read_buffer_len(context_, kReadAhead);
  }
}

Tls::~Tls() {
  ::SSL_CTX_free(context_);
  ::BIO_meth_free(into_vector_);
}

Session Tls::begin(int socket, Side side, std::vector<char>& out) const {
  Session session(::SSL_new(context_));
  BIO* in = ::BIO_new_socket(socket, BIO_NOCLOSE);
  BIO* into = ::BIO_new(into_vector_);
  SKEIN_CHECK(session && in && into, "OpenSSL: {}", tls_error());
  ::BIO_set_data(into, &out);
  ::BIO_set_init(into, 1);
  ::SSL_set_bio(session.get(), in, into);
  if (side == Side::accepts) {
    ::SSL_set_accept_state(session.get());
  } else {
    ::SSL_set_connect_state(session.get());
    // Whoever shows a certificate instead of the key is refused: none is trusted.
    ::SSL_set_verify(session.get(), SSL_VERIFY_PEER, nullptr);
  }
  return session;
}

bool authenticated(const SSL& session) {
  return ::SSL_is_init_finished(&session) == 1 && ::SSL_session_reused(&session) == 1;
}

std::string tls_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* reason = code != 0 ? ::ERR_reason_error_string(code) : nullptr;
  return reason ? reason : "no reason given";
}

}  // namespace skein::tcp
