"""The HTTP server: only this machine, only this page, and a response to every bad request."""

import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from glassformer import GlassError
from glassformer.cli import glass
from glassformer.serve.app import HOST, MAX_BODY, PAGE, bind, make_app
from glassformer.serve.envelope import unpack
from glassformer.serve.handlers import HANDLERS

TOKEN, PORT = "secret", 8765


@pytest.fixture(scope="module")
def client(session):
    return TestClient(make_app(session("generate"), TOKEN, PORT), base_url=f"http://{HOST}:{PORT}")


def test_page_and_its_files_are_served_with_strict_headers(client):
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    for file in PAGE.iterdir():
        response = client.get(f"/{TOKEN}/{file.name}")
        assert response.content == file.read_bytes(), file
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == policy
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("path", ["/", "/index.html", "/wrong/", "/wrong/api/model", "/docs"])
def test_nothing_is_served_without_the_secret(client, path):
    assert client.get(path).status_code == 404
    assert client.post(path, json={}).status_code in (404, 405)


@pytest.mark.parametrize("name", ["../app.py", "%2e%2e/app.py", "..%2fapp.py", "nothing.js"])
def test_files_outside_the_page_are_not_served(client, name):
    assert client.get(f"/{TOKEN}/{name}").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": f"evil.example:{PORT}"},
        {"host": HOST},
        {"host": f"{HOST}:1"},
        {"origin": "http://evil.example"},
        {"origin": f"https://{HOST}:{PORT}"},
        {"origin": "null"},
    ],
)
def test_other_hosts_and_other_sites_are_rejected(client, headers):
    for response in (
        client.get(f"/{TOKEN}/", headers=headers),
        client.post(f"/{TOKEN}/api/model", json={}, headers=headers),
    ):
        assert response.status_code == 403
        assert "error" in response.json()


def test_the_page_s_own_requests_are_answered(client):
    for host in (f"{HOST}:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"):
        headers = {"host": host, "origin": f"http://{host}"}
        response = client.post(f"/{TOKEN}/api/model", json={}, headers=headers)
        assert unpack(response.content)["architecture"] == "gpt2"


@pytest.mark.parametrize(
    ("name", "body", "status", "message"),
    [
        ("nothing", b"{}", 400, "unknown request"),
        ("model", b"[]", 400, "must be a JSON object"),
        ("model", b"{", 400, "Expecting"),
        ("model", b"\xff\xfe", 400, "Expecting"),
        ("pass", b'{"input": {"text": 1}}', 400, "text must be a text"),
        ("values", b'{"input": {"text": "a"}, "name": "x"}', 400, "no value is named"),
        ("pass", b"x" * (MAX_BODY + 1), 413, "larger than"),
    ],
)
def test_bad_requests_get_a_message(client, name, body, status, message):
    response = client.post(f"/{TOKEN}/api/{name}", content=body)
    assert response.status_code == status
    assert message in response.json()["error"]


def test_an_edit_that_does_not_fit_gets_a_message(client):
    edits = [{"name": "blocks.0.attention.pattern", "kind": "zero", "head": 99}]
    body = {"input": {"text": "the cat"}, "edits": edits}
    response = client.post(f"/{TOKEN}/api/pass", json=body)
    assert response.status_code == 400
    assert "head 99 is out of range" in response.json()["error"]


def test_an_unexpected_error_is_an_answer_without_a_traceback(client, monkeypatch, capsys):
    def fail(_session, _request):
        raise ZeroDivisionError("what went wrong")

    monkeypatch.setitem(HANDLERS, "model", fail)
    response = client.post(f"/{TOKEN}/api/model", json={})
    assert response.status_code == 500
    assert response.json() == {"error": "ZeroDivisionError: what went wrong"}
    assert "Traceback" not in capsys.readouterr().err


def test_answers_and_errors_are_in_the_language_of_the_page(client):
    body = {"input": {"text": "the cat"}, "lang": "zh"}
    answer = unpack(client.post(f"/{TOKEN}/api/pass", json=body).content)
    assert any(stage["title"] == "注意力权重" for stage in answer["stages"])
    response = client.post(f"/{TOKEN}/api/lesson", json={"lesson": "x", "lang": "zh"})
    assert response.json()["error"].startswith("没有例题")
    english = unpack(client.post(f"/{TOKEN}/api/pass", json={"input": {"text": "the cat"}}).content)
    assert any(stage["title"] == "Attention weights" for stage in english["stages"])


def test_a_busy_port_is_named_and_without_a_port_another_is_used():
    with bind(None) as first:
        port = first.getsockname()[1]
        assert first.getsockname()[0] == "127.0.0.1"
        with pytest.raises(GlassError, match=f"port {port} is not available"):
            bind(port)
        with bind(None) as second:
            assert second.getsockname()[1] != port


def test_look_prints_one_line_with_the_address_and_stops_on_ctrl_c(runs):
    command = [sys.executable, "-c", "from glassformer.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "look", str(runs / "generate"), "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = process.stdout.readline().strip()
        assert url.startswith(f"http://{HOST}:")
        host, port = url.split("/")[2].split(":")
        path = "/" + url.split("/", 3)[3]
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"content-security-policy" in answer
    finally:
        process.send_signal(2)
        output, error = process.communicate(timeout=60)
    assert output == ""
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["look", "no/such/run"], "does not exist"),
        (["look", "--port", "0"], "0 is not in the range"),
        (["look", "--export", "no/such/folder/page.html"], "folder"),
    ],
)
def test_wrong_use_of_look_gets_a_message(arguments, message):
    result = CliRunner().invoke(glass, arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output + str(result.exception)


def test_a_folder_without_a_model_gets_a_message(tmp_path):
    (tmp_path / "config.toml").write_text("not toml [")
    result = CliRunner().invoke(glass, ["look", str(tmp_path), "--no-browser"])
    assert result.exit_code != 0
    assert isinstance(result.exception, GlassError)


def test_export_does_not_overwrite_a_file_without_being_asked(runs, tmp_path):
    file = tmp_path / "page.html"
    file.write_text("mine")
    arguments = ["look", str(runs / "recommend"), "--export", str(file)]
    result = CliRunner().invoke(glass, arguments)
    assert result.exit_code != 0
    assert file.read_text() == "mine"
    assert CliRunner().invoke(glass, [*arguments, "--overwrite"]).exit_code == 0
    assert '<script id="responses"' in file.read_text()
