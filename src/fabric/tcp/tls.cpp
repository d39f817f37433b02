#include "fabric/tcp/tls.h"

#include <openssl/err.h>

#include <cstring>

#include "core/check.h"

namespace skein::tcp {
namespace {

constexpr char kIdentity[] = "skein";
const unsigned char kAes128GcmSha256[] = {0x13, 0x01};

// The key as the session that a pre-shared key is to OpenSSL; null when there is no memory.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* proof = static_cast<const Proof*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
  const Key* key = std::get_if<Key>(proof);
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, kAes128GcmSha256);
  SSL_SESSION* session = ::SSL_SESSION_new();
  if (key && session && cipher &&
      ::SSL_SESSION_set1_master_key(session, key->data(), key->size()) == 1 &&
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

// Somebody connects who shows the other thing: told so, it can say what is wrong.
int look_at_offer(SSL* ssl, int* alert, void* proof) {
  const bool by_key = std::holds_alternative<Key>(*static_cast<const Proof*>(proof));
  const unsigned char* offer = nullptr;
  std::size_t length = 0;
  const bool offers_key = ::SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &offer, &length) == 1;
  if (offers_key == by_key) return SSL_CLIENT_HELLO_SUCCESS;
  *alert = by_key ? SSL_AD_UNKNOWN_PSK_IDENTITY : SSL_AD_UNSUPPORTED_EXTENSION;
  return SSL_CLIENT_HELLO_ERROR;
}

int take(BIO* bio, char* into, std::size_t bytes, std::size_t* taken) {
  ::BIO_clear_retry_flags(bio);
  *taken = 0;
  const ssize_t got = static_cast<Intake*>(::BIO_get_data(bio))->read(into, bytes);
  if (got < 0 && ::BIO_sock_should_retry(-1) == 1) ::BIO_set_retry_read(bio);
  if (got <= 0) return 0;
  *taken = static_cast<std::size_t>(got);
  return 1;
}

int append(BIO* bio, const char* data, std::size_t bytes, std::size_t* written) {
  auto& out = *static_cast<std::vector<char>*>(::BIO_get_data(bio));
  out.insert(out.end(), data, data + bytes);
  *written = bytes;
  return 1;
}

long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

}  // namespace

Tls::Tls(const Proof& proof)
    : proof_(proof),
      context_(::SSL_CTX_new(::TLS_method())),
      from_intake_(::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "intake")),
      into_vector_(::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "vector")) {
  SKEIN_CHECK(context_ && from_intake_ && into_vector_, "OpenSSL: {}", tls_error());
  ::BIO_meth_set_read_ex(from_intake_.get(), take);
  ::BIO_meth_set_ctrl(from_intake_.get(), control);
  ::BIO_meth_set_write_ex(into_vector_.get(), append);
  ::BIO_meth_set_ctrl(into_vector_.get(), control);
  SSL_CTX* context = context_.get();
  SSL_CTX_set_app_data(context, const_cast<Proof*>(&proof_));
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SKEIN_CHECK(::SSL_CTX_set_ciphersuites(
                  context, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1,
              "OpenSSL: {}", tls_error());
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_num_tickets(context, 0);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_client_hello_cb(context, look_at_offer, const_cast<Proof*>(&proof_));
  if (const auto* files = std::get_if<CertificateFiles>(&proof_)) {
    use_certificates(*context, *files);
  } else {
    ::SSL_CTX_set_psk_use_session_callback(context, offer_key);
    ::SSL_CTX_set_psk_find_session_callback(context, find_key);
  }
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
}

Session Tls::begin(Side side, Intake& in, std::vector<char>& out) const {
  Session session(::SSL_new(context_.get()));
  BIO* from = ::BIO_new(from_intake_.get());
  BIO* into = ::BIO_new(into_vector_.get());
  SKEIN_CHECK(session && from && into, "OpenSSL: {}", tls_error());
  ::BIO_set_data(from, &in);
  ::BIO_set_init(from, 1);
  ::BIO_set_data(into, &out);
  ::BIO_set_init(into, 1);
  ::SSL_set_bio(session.get(), from, into);
  if (side == Side::accepts) {
    ::SSL_set_accept_state(session.get());
  } else {
    ::SSL_set_connect_state(session.get());
    // Whoever shows a certificate instead of the key is refused: none is trusted.
    if (by_key()) ::SSL_set_verify(session.get(), SSL_VERIFY_PEER, nullptr);
  }
  return session;
}

bool Tls::authenticated(const SSL& session) const {
  if (::SSL_is_init_finished(&session) != 1) return false;
  const bool knows_key = ::SSL_session_reused(&session) == 1;
  if (by_key()) return knows_key;
  return !knows_key && ::SSL_get0_peer_certificate(&session) != nullptr &&
         ::SSL_get_verify_result(&session) == X509_V_OK;
}

std::string Tls::trouble(const SSL& session) const {
  const int reason = ERR_GET_REASON(::ERR_peek_error());
  const bool told = told_by_the_other_side();
  const long verified = ::SSL_get_verify_result(&session);
  const std::string text = tls_error();
  if (reason == SSL_R_CALLBACK_FAILED)  // in look_at_offer
    return by_key() ? "it shows no secret: does it have certificates?"
                    : "it shows no certificate: does it have a secret?";
  if (!by_key() && reason == SSL_AD_REASON_OFFSET + SSL_AD_UNKNOWN_PSK_IDENTITY)
    return "it has a secret, and this worker has certificates";
  if (by_key() && (verified != X509_V_OK || reason == SSL_R_TLSV1_UNSUPPORTED_EXTENSION))
    return "it has certificates, and this worker has a secret";
  if (verified != X509_V_OK) return ::X509_verify_cert_error_string(verified);
  return told ? "it refuses this worker: " + text : text;
}

const char* Tls::what_is_shown() const {
  return by_key() ? "the secret that this worker has"
                  : "a certificate that this worker trusts, or does not trust this worker's";
}

const char* Tls::what_strangers_lack() const {
  return by_key() ? "know the secret" : "show a certificate that is trusted here";
}

bool told_by_the_other_side() { return ERR_GET_REASON(::ERR_peek_error()) >= SSL_AD_REASON_OFFSET; }

std::string tls_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* reason = code != 0 ? ::ERR_reason_error_string(code) : nullptr;
  std::string text = reason ? reason : "no reason given";
  // OpenSSL gives alerts of every version of TLS the name of the oldest.
  for (const std::string_view old : {"sslv3 alert ", "tlsv1 alert ", "tlsv13 alert "})
    if (text.starts_with(old)) text.erase(0, old.size());
  return text;
}

}  // namespace skein::tcp
