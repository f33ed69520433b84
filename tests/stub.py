"""An HTTP server whose answers a test decides."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Stub(ThreadingHTTPServer):
    """`answer(request, data)` returns (status, body, header...), or writes an answer of its own and
    returns None.

    `asked` has the (method, path, data) of each request so far.
    """

    daemon_threads = True

    def __init__(self, answer=None):
        self.answer, self.asked = answer or self.answer, []
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request, data):
        raise NotImplementedError

    def close(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, *_):
        pass  # the client has gone


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_request(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, data))
        answer = self.server.answer(self, data)
        if answer is None:
            self.close_connection = True
            return
        status, body, *headers = answer
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_CONNECT = handle_request

    def log_message(self, *_):
        pass
