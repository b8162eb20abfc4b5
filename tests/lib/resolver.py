"""A name server of the test: authoritative for what the test says, with a record of every question that it was asked.

`names` maps a lower-case name to what it answers: a list of addresses (each answer gives all), or a function (question) -> Answer for a
server that lies, changes its mind or says nothing.
"""
import collections
import ipaddress
import selectors
import socket
import struct
import threading
from dataclasses import dataclass, field

A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, ANY = 1, 2, 5, 6, 12, 15, 16, 28, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, REFUSED = 0, 1, 2, 3, 5


@dataclass
class Question:
    name: str
    kind: int
    transport: str  # "udp" or "tcp"
    number: int  # how many questions for this name and kind came before


@dataclass
class Answer:
    records: list = field(default_factory=list)  # (kind, data) or (kind, data, owner); data an address or a name
    rcode: int = NOERROR
    ttl: int = 60
    truncated: bool = False
    silent: bool = False
    other_id: bool = False
    raw: bytes = None  # in place of all of it, after the id


def encode_name(name):
    return b"".join(bytes([len(x)]) + x for x in (label.encode("latin-1") for label in name.rstrip(".").split(".")) if x) + b"\0"


def decode_name(packet, at):
    labels, end, jumps = [], None, 0
    while True:
        n = packet[at]
        if n >= 0xC0:
            end = end or at + 2
            at = (n & 0x3F) << 8 | packet[at + 1]
            jumps += 1
            if jumps > 20:
                raise ValueError("a loop of pointers")
        elif n == 0:
            return ".".join(labels), end or at + 1
        else:
            labels.append(packet[at + 1:at + 1 + n].decode("latin-1"))
            at += 1 + n


def encode_record(owner, kind, data, ttl):
    if kind in (A, AAAA):
        data = ipaddress.ip_address(data).packed
    elif kind in (CNAME, NS, PTR):
        data = encode_name(data)
    return encode_name(owner) + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


class Resolver:
    def __init__(self, address="127.0.0.1", port=53):
        self.names, self.questions, self.lock = {}, [], threading.Lock()
        self._numbers = collections.Counter()
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((address, port))
        self._tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tcp.bind((address, port))
        self._tcp.listen(64)
        self._wake, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._stop.close()
        self._thread.join()
        for s in (self._udp, self._tcp, self._wake):
            s.close()

    def asked(self):
        """The names that were asked for, each once."""
        with self.lock:
            return {q.name for q in self.questions}

    def count(self, name, kind=None):
        with self.lock:
            return sum(q.name == name and kind in (None, q.kind) for q in self.questions)

    # ---- serving -----------------------------------------------------------

    def _serve(self):
        chooser, buffers = selectors.DefaultSelector(), {}
        for s in (self._udp, self._tcp, self._wake):
            chooser.register(s, selectors.EVENT_READ)
        while True:
            for key, _ in chooser.select():
                s = key.fileobj
                if s is self._wake:
                    for c in buffers:
                        c.close()
                    return chooser.close()
                if s is self._udp:
                    packet, peer = s.recvfrom(65535)
                    answer = self._respond(packet, "udp")
                    if answer:
                        s.sendto(answer, peer)
                elif s is self._tcp:
                    c, _ = s.accept()
                    buffers[c] = b""
                    chooser.register(c, selectors.EVENT_READ)
                elif not self._read(s, buffers):
                    chooser.unregister(s)
                    del buffers[s]
                    s.close()

    def _read(self, s, buffers):
        try:
            data = s.recv(65535)
        except OSError:
            return False
        buffers[s] += data
        while len(buffers[s]) >= 2 and len(buffers[s]) - 2 >= int.from_bytes(buffers[s][:2], "big"):
            n = int.from_bytes(buffers[s][:2], "big")
            answer = self._respond(buffers[s][2:2 + n], "tcp")
            buffers[s] = buffers[s][2 + n:]
            if answer:
                s.sendall(struct.pack("!H", len(answer)) + answer)
        return bool(data)

    def _respond(self, packet, transport):
        try:
            name, end = decode_name(packet, 12)
            kind = int.from_bytes(packet[end:end + 2], "big")
        except (IndexError, ValueError):
            with self.lock:
                self.questions.append(Question("(malformed)", 0, transport, 0))
            return None
        name = name.lower()
        with self.lock:
            number = self._numbers[name, kind]
            self._numbers[name, kind] += 1
            question = Question(name, kind, transport, number)
            self.questions.append(question)
        known = self.names.get(name)
        if known is None:
            answer = Answer(rcode=NXDOMAIN)
        elif callable(known):
            answer = known(question)
        else:
            of = {4: A, 6: AAAA}
            answer = Answer([(kind, a) for a in known if of[ipaddress.ip_address(a).version] == kind])
        return None if answer.silent else self._encode(packet, packet[12:end + 4], name, answer)

    @staticmethod
    def _encode(packet, question, name, answer):
        number = packet[:2] if not answer.other_id else bytes([packet[0] ^ 0x55, packet[1]])
        if answer.raw is not None:
            return number + answer.raw
        flags = 0x8580 | answer.rcode | (0x200 if answer.truncated else 0)
        records = [] if answer.truncated else answer.records
        body = b"".join(encode_record(r[2] if len(r) > 2 else name, r[0], r[1], answer.ttl) for r in records)
        return number + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + body
