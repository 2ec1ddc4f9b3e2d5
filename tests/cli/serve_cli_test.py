# SPDX-License-Identifier: Apache-2.0
"""epilogue serve: what it hands out, and above all what it does not."""
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import unittest

from command import BINARY, CommandTest

TIMEOUT_S = 20


class Serve(CommandTest):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.out, "served")
        os.makedirs(os.path.join(self.folder, "sub"))
        self.files = {"a.json": b'{"traceEvents": []}', "b b.json.gz": gzip.compress(b"[]"),
                      "sub/page.html": b"<!doctype html>"}
        for name, data in {**self.files, "notes.txt": b"private", "../secret.json": b"secret"}.items():
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(data)
        os.symlink("../secret.json", os.path.join(self.folder, "link.json"))
        os.symlink("..", os.path.join(self.folder, "up"))
        os.symlink("a.json", os.path.join(self.folder, "inside.json"))
        self.server = subprocess.Popen(
            [BINARY, "serve", self.folder, "--port", "0", "--format", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.listing = self.read_listing()
        self.port = self.listing["port"]

    def read_listing(self):
        text = ""
        while not text.endswith("}\n") or text.count("{") != text.count("}"):
            line = self.server.stdout.readline()
            self.assertTrue(line, "the server ended: " + (self.server.stderr.read() if not line else ""))
            text += line
        return json.loads(text)

    def end(self):
        if self.server.poll() is None:
            self.server.kill()
        self.server.communicate()

    def ask(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def test_listing_names_a_perfetto_url_for_each_trace(self):
        base = f"http://127.0.0.1:{self.port}/"
        self.assertEqual([f["file"] for f in self.listing["files"]],
                         ["a.json", "b b.json.gz", "inside.json", "sub/page.html"])
        self.assertEqual(self.listing["files"][1]["perfetto_url"],
                         f"https://ui.perfetto.dev/#!/?url={base}b%20b.json.gz")
        self.assertNotIn("perfetto_url", self.listing["files"][3])

    def test_files_come_whole_with_type_and_cors(self):
        types = {"a.json": "application/json", "b b.json.gz": "application/gzip",
                 "sub/page.html": "text/html; charset=utf-8"}
        for name, data in self.files.items():
            answer, body = self.ask("/" + name.replace(" ", "%20"))
            self.assertEqual(answer.status, 200, name)
            self.assertEqual(body, data)
            self.assertEqual(answer.getheader("Content-Type"), types[name])
            self.assertEqual(answer.getheader("Access-Control-Allow-Origin"),
                             "https://ui.perfetto.dev")
            self.assertIsNone(answer.getheader("Content-Encoding"))

    def test_head_has_the_length_and_no_body(self):
        answer, body = self.ask("/a.json", "HEAD")
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.getheader("Content-Length"), str(len(self.files["a.json"])))
        self.assertEqual(body, b"")

    def test_nothing_else_is_handed_out(self):
        for path in ("/", "/none.json", "/notes.txt", "/sub", "/sub/", "/../secret.json",
                     "/%2e%2e/secret.json", "/sub/../../secret.json", "/..%2fsecret.json",
                     "//" + self.out.strip("/") + "/secret.json", "/link.json", "/up/secret.json",
                     "/a.json%00.html", "/a.json%0a"):
            answer, body = self.ask(path)
            self.assertIn(answer.status, (400, 404), path)
            self.assertNotIn(b"secret", body, path)
            self.assertNotIn(b"private", body, path)

    def test_other_methods_are_refused(self):
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer, _ = self.ask("/a.json", method)
            self.assertEqual(answer.status, 405, method)
            self.assertEqual(answer.getheader("Allow"), "GET, HEAD")

    def test_another_name_for_this_host_is_refused(self):
        answer, body = self.ask("/a.json", headers={"Host": f"evil.example:{self.port}"})
        self.assertEqual(answer.status, 403)
        self.assertNotEqual(body, self.files["a.json"])

    def test_only_loopback_listens(self):
        with open("/proc/net/tcp", encoding="ascii") as f:
            sockets = [line.split()[1] for line in f.readlines()[1:] if line.split()[3] == "0A"]
        ours = [address for address in sockets if address.endswith(f":{self.port:04X}")]
        self.assertEqual(ours, [f"0100007F:{self.port:04X}"])

    def test_interrupt_ends_it_cleanly(self):
        self.server.send_signal(signal.SIGINT)
        _, errors = self.server.communicate(timeout=TIMEOUT_S)
        self.assertEqual(self.server.returncode, 0, errors)

    def test_a_taken_port_is_one_line(self):
        self.assertIn(f"port {self.port} of 127.0.0.1 cannot be used",
                      self.misuse("serve", self.folder, "--port", str(self.port)))
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            self.misuse("serve", self.folder, "--port", str(other.getsockname()[1]))

    def test_misuse(self):
        self.assertIn("expected a folder", self.misuse("serve", os.path.join(self.folder, "a.json")))
        self.misuse("serve", self.folder, "--port", "70000")


if __name__ == "__main__":
    unittest.main()
