//! TLS to the server: rustls, with the certificate and the server's name always verified. An
//! encrypted connection to whoever answers would promise what it does not keep.

use floe_env::{Env, Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Whom a TLS connection trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The system's certificate authorities.
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

/// Makes TLS connections.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the certificates.
    ///
    /// Errors: `Invalid` where there are none, or none that can be read.
    pub(crate) async fn load(env: &Env, roots: &Roots) -> Result<Self> {
        let roots = roots.clone();
        let store = env
            .blocking(move || match roots {
                Roots::System => system_roots(),
                Roots::File(path) => roots_of_file(&path),
            })
            .await?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::bug("rustls has no protocol version").with_source(error))?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

fn system_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(found.certs);
    match added {
        0 => Err(Error::invalid(
            "the system has no certificate authorities: name a file with sslrootcert=FILE",
        )),
        _ => Ok(store),
    }
}

fn roots_of_file(path: &Path) -> Result<RootCertStore> {
    let refused = |what: &str| Error::invalid(format!("sslrootcert {}: {what}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| refused("cannot be read").with_source(error))?;
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        let certificate =
            certificate.map_err(|error| refused("is not a PEM file").with_source(error))?;
        store
            .add(certificate)
            .map_err(|error| refused("holds a malformed certificate").with_source(error))?;
    }
    if store.is_empty() {
        return Err(refused("holds no certificate"));
    }
    Ok(store)
}

/// What a failed connection says, where that is due to the settings of TLS.
pub(crate) fn explain(error: &tokio_postgres::Error) -> Option<Error> {
    let cause = std::error::Error::source(error)?;
    let Some(io) = cause.downcast_ref::<io::Error>() else {
        let has_no_tls = cause.to_string().contains("does not support TLS");
        return has_no_tls.then(|| {
            Error::invalid(
                "PostgreSQL does not speak TLS: switch it on there (ssl=on), or remove sslmode",
            )
        });
    };
    let fault = io.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(fault, rustls::Error::InvalidCertificate(_)).then(|| {
        Error::invalid(format!(
            "PostgreSQL's certificate is refused: {fault}; sslrootcert must name the file of the \
             authority that signed it, and the address the host that it is for"
        ))
    })
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Connecting;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connecting> {
        let name = ServerName::try_from(domain.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Connecting { connector: TlsConnector::from(Arc::clone(&self.0)), name })
    }
}

/// A handshake to come, with the name that the certificate must have.
pub(crate) struct Connecting {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for Connecting
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let handshake = self.connector.connect(self.name, stream);
        Box::pin(async move { Ok(Encrypted(handshake.await?)) })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
