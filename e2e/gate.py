"""A gate before a server of this machine: while it is closed nobody gets through, and whoever was inside is cut off. And one that
speaks TLS to its clients."""
import contextlib
import pathlib
import socket
import ssl
import threading

BUFFER_BYTES = 65_536
# Of a test's own authority, for 127.0.0.1.
CERTIFICATES = pathlib.Path(__file__).parent.parent / "metadata/tests/postgres/certificates"


def free_ports(count):
    """Ports of 127.0.0.1 that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Gate:
    """Open from the start. port: where its clients connect to; it stays the same."""

    def __init__(self, server_port):
        self.server_port, self.port = server_port, 0
        self.listener, self.inside, self.lock = None, set(), threading.Lock()
        self.open()

    def url(self, scheme):
        return f"{scheme}://127.0.0.1:{self.port}"

    def open(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port, self.listener = listener.getsockname()[1], listener
        threading.Thread(target=self.let_in, args=(listener,), daemon=True).start()

    def close(self):
        """Whoever comes is refused from now on."""
        with self.lock:
            # A thread that waits in accept() keeps the port open until it is woken.
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            cut, self.inside = self.inside, set()
        for each in cut:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def let_in(self, listener):
        while True:
            try:
                client = self.welcome(listener.accept()[0])
                server = socket.create_connection(("127.0.0.1", self.server_port), timeout=10)
            except OSError:
                if listener.fileno() < 0:
                    return
                continue
            server.settimeout(None)
            with self.lock:
                if listener is not self.listener or listener.fileno() < 0:
                    client.close(), server.close()
                    return
                self.inside |= {client, server}
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=ends, daemon=True).start()

    def welcome(self, client):
        return client

    def saw(self, data):
        """What passes, in pieces."""

    def pass_on(self, source, target):
        """Until one end leaves; then both do."""
        with contextlib.suppress(OSError):
            while data := source.recv(BUFFER_BYTES):
                self.saw(data)
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self.lock:
            self.inside -= {source, target}


class TlsGate(Gate):
    """authority: who vouches for it, a file; unsigned: uploads to S3 whose bytes are not in their signature."""

    authority = CERTIFICATES / "authority.pem"

    def __init__(self, server_port):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
        self.unsigned = 0
        super().__init__(server_port)

    def welcome(self, client):
        # A client that does not trust it leaves in the middle of this.
        client.settimeout(10)
        client = self.context.wrap_socket(client, server_side=True)
        client.settimeout(None)
        return client

    def saw(self, data):
        self.unsigned += data.count(b"UNSIGNED-PAYLOAD")
