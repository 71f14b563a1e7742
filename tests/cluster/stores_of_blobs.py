"""An S3-compatible server for tests: moto's, on loopback, in a process of its own that checks signatures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from palyra.cluster.s3 import S3Blobs, Store
from palyra.cluster.sigv4 import Credentials

ADMIN = Credentials(access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


_OPEN: list[Any] = []
"""Clients whose sockets are closed with their server."""


def blobs_in(store: Store, credentials: Credentials = ADMIN) -> S3Blobs:
    made = S3Blobs(store, lambda: credentials, now_unix_ms)
    _OPEN.append(made)
    return made


@dataclass(frozen=True)
class Server:
    endpoint: str

    def client(self) -> Any:
        import boto3
        from botocore.config import Config

        made = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ADMIN.access_key,
            aws_secret_access_key=ADMIN.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )
        _OPEN.append(made)
        return made

    def bucket(self, name: str) -> Store:
        self.client().create_bucket(Bucket=name)
        return Store(endpoint=self.endpoint, bucket=name, region="us-east-1", prefix="palyra/blobs/")

    def blobs(self, name: str) -> S3Blobs:
        return blobs_in(self.bucket(name))

    def user(self) -> Credentials:
        """A user with every right, and a key that the server knows."""
        import boto3

        iam = boto3.client(
            "iam",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ADMIN.access_key,
            aws_secret_access_key=ADMIN.secret_key,
        )
        iam.create_user(UserName="palyra")
        may = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
        iam.put_user_policy(UserName="palyra", PolicyName="s3", PolicyDocument=json.dumps(may))
        _OPEN.append(iam)
        made = iam.create_access_key(UserName="palyra")["AccessKey"]
        return Credentials(access_key=made["AccessKeyId"], secret_key=made["SecretAccessKey"])

    def check_signatures(self) -> None:
        """From now on every request has to be signed by somebody the server knows."""
        request = urllib.request.Request(
            f"{self.endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request, timeout=10).close()


@contextmanager
def s3_server() -> Iterator[Server]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=kept,
    )  # fmt: skip
    try:
        yield Server(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        while _OPEN:
            _OPEN.pop().close()
        process.stdin.close()
        process.terminate()
        process.wait(10)
        process.stdout.close()


def now_unix_ms() -> int:
    return time.time_ns() // 1_000_000
