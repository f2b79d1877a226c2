//! Encrypted connections: a server that speaks TLS stands in front of PostgreSQL, with a
//! certificate of an authority of its own (`certificates/`, good for a hundred years).

use super::{address, through_proxy, with_parameter};
use floe_env::{Env, ErrorKind, Lane, Result};
use floe_metadata::postgres::PostgresOptions;
use floe_metadata::{Backend, PostgresBackend};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A client's request to speak TLS: its length, and a number that is no protocol's version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/certificates").join(name)
}

fn acceptor() -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificate("server.pem")).unwrap();
    let chain = chain.map(|one| one.unwrap()).collect();
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Answers what a client asks first with `answer`, and goes on in TLS where that is yes. Counts
/// handshakes that succeeded.
async fn start_front(env: &Env, answer: u8) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, _) = through_proxy(&address(), None);
    let (acceptor, handshakes) = (acceptor(), Arc::new(AtomicU64::new(0)));
    let (inner, counted) = (env.clone(), Arc::clone(&handshakes));
    env.spawn("front", Lane::Foreground, async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (server, acceptor) = (server.clone(), acceptor.clone());
            let counted = Arc::clone(&counted);
            inner.spawn("fronted", Lane::Foreground, async move {
                let mut asked = [0; SSL_REQUEST.len()];
                client.read_exact(&mut asked).await.unwrap();
                assert_eq!(asked, SSL_REQUEST);
                client.write_all(&[answer]).await.unwrap();
                let Ok(mut client) = acceptor.accept(client).await else { return };
                counted.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect((server.0.as_str(), server.1)).await;
                let _ = copy_bidirectional(&mut client, &mut server.unwrap()).await;
            });
        }
    });
    (port, handshakes)
}

/// Connects to the front at this host.
async fn connect(env: &Env, port: u16, host: &str, parameters: &str) -> Result<PostgresBackend> {
    let (_, url) = through_proxy(&address(), Some(port));
    let url = url.replace("127.0.0.1", host);
    let url = with_parameter(&url, &format!("schema=tls_{}&{parameters}", env.uuid().simple()));
    PostgresBackend::open(env, PostgresOptions::parse(&url)?).await
}

/// The same, and asks the time.
async fn open(env: &Env, port: u16, host: &str, parameters: &str) -> Result<()> {
    connect(env, port, host, parameters).await?.now_ms().await.map(drop)
}

fn verified(roots: &str) -> String {
    format!("sslmode=verify-full&sslrootcert={}", certificate(roots).display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_known_authority_is_spoken_to_in_tls() {
    let env = Env::current();
    let (port, handshakes) = start_front(&env, b'S').await;
    open(&env, port, "127.0.0.1", &verified("authority.pem")).await.unwrap();
    let counted = handshakes.load(Ordering::Relaxed);
    assert!(counted >= 2, "the guard and a connection, but {counted} handshakes");
    let required = verified("authority.pem").replace("verify-full", "require");
    open(&env, port, "127.0.0.1", &required).await.unwrap();
    assert!(handshakes.load(Ordering::Relaxed) > counted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_authorities_names_and_files_are_told() {
    let env = Env::current();
    let (port, _) = start_front(&env, b'S').await;
    let refused = async |host: &str, parameters: &str, expected: &str| {
        let error = open(&env, port, host, parameters).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{parameters}: {error}");
        assert!(error.to_string().contains(expected), "{parameters}: {error}");
    };
    let untrusted = "PostgreSQL's certificate is refused: invalid peer certificate: UnknownIssuer";
    refused("127.0.0.1", &verified("stranger.pem"), untrusted).await;
    let other_name = "PostgreSQL's certificate is refused: invalid peer certificate: certificate \
                      not valid for name \"localhost\"";
    refused("localhost", &verified("authority.pem"), other_name).await;
    refused("127.0.0.1", &verified("none.pem"), "none.pem: cannot be read").await;
    refused("127.0.0.1", &verified("server.key"), "server.key: holds no certificate").await;
    refused("127.0.0.1", "sslmode=prefer", "sslmode=prefer: Floe knows disable").await;
    refused("127.0.0.1", "sslrootcert=a.pem", "sslrootcert without TLS").await;
}

/// A certificate that is being changed, say: a running broker waits, as for a server that is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_certificate_is_final_at_the_start_only() {
    let env = Env::current();
    let (port, _) = start_front(&env, b'S').await;
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::copy(certificate("authority.pem"), &roots).unwrap();
    let parameters = format!("sslmode=verify-full&sslrootcert={}", roots.display());
    let backend = connect(&env, port, "127.0.0.1", &parameters).await.unwrap();
    // So many calls at once need more sessions than the first.
    let calls = || futures::future::join_all((0..3).map(|_| backend.now_ms()));
    for roots_now in ["stranger.pem", "none.pem"] {
        let _ = std::fs::remove_file(&roots);
        if certificate(roots_now).exists() {
            std::fs::copy(certificate(roots_now), &roots).unwrap();
        }
        let answers = calls().await;
        let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        assert!(!errors.is_empty(), "{roots_now}");
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{roots_now}: {error}");
        }
    }
    std::fs::copy(certificate("authority.pem"), &roots).unwrap();
    assert!(calls().await.iter().all(Result::is_ok), "it goes on by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_not_spoken_to() {
    let env = Env::current();
    let (port, handshakes) = start_front(&env, b'N').await;
    let error = open(&env, port, "127.0.0.1", &verified("authority.pem")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    assert_eq!(handshakes.load(Ordering::Relaxed), 0);
}
