"""What a service manager hears of the server (sd_notify's protocol, NOTIFY_SOCKET)."""

import os
import socket

import httpx
import pytest


class Manager:
    """A service manager's end: a datagram socket with a path, or without one."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(20)

    def receive(self) -> dict[str, str]:
        lines = self.socket.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def __enter__(self) -> "Manager":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.fixture(params=["path", "abstract"])
def address(request, tmp_path):
    return str(tmp_path / "notify") if request.param == "path" else f"@pinfer-{os.getpid()}"


def test_ready_means_that_it_answers(serve, chat_bundle, address):
    with Manager(address) as manager:
        with serve(chat_bundle, wait=False, env={"NOTIFY_SOCKET": address}) as server:
            assert manager.receive() == {"STATUS": "loading the model"}
            said = manager.receive()
            assert said["READY"] == "1"
            url = said["STATUS"].removeprefix("listening on ")
            assert httpx.get(url + "/health").status_code == 200
            server.process.terminate()
            assert manager.receive()["STOPPING"] == "1"
            assert server.process.wait(20) == 0
        manager.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.receive()


def test_a_server_that_cannot_start_never_says_ready(serve, chat_bundle, address):
    with Manager(address) as manager:
        flags = ("--num-blocks", "3")  # refused when the model is there
        server = serve(chat_bundle, *flags, wait=False, env={"NOTIFY_SOCKET": address})
        assert server.process.wait(20) == 1
        assert manager.receive() == {"STATUS": "loading the model"}
        manager.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.receive()


def test_a_manager_that_is_not_there_is_a_warning(serve, chat_bundle):
    with serve(chat_bundle, env={"NOTIFY_SOCKET": "/no/such/socket"}) as server:
        assert server.get("/health").status_code == 200
        assert "NOTIFY_SOCKET /no/such/socket: No such file or directory" in server.log()
