"""What really was on the wire: a record of every packet on the loopback device of the test's network namespace."""
import ipaddress
import os
import socket
import struct
import threading
from dataclasses import dataclass

OUTGOING = 4  # each packet on loopback is seen twice: as it is sent, and as it arrives
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58


@dataclass(frozen=True)
class Packet:
    protocol: int
    source: str
    target: str
    source_port: int
    port: int
    syn: bool
    data: bytes


def parse(data):
    version = data[0] >> 4
    if version == 4:
        header, protocol, source, target = (data[0] & 15) * 4, data[9], data[12:16], data[16:20]
    elif version == 6:
        header, protocol, source, target = 40, data[6], data[8:24], data[24:40]
    else:
        return None
    source, target = str(ipaddress.ip_address(source)), str(ipaddress.ip_address(target))
    rest = data[header:]
    if protocol == TCP and len(rest) >= 20:
        sport, port = struct.unpack("!HH", rest[:4])
        return Packet(protocol, source, target, sport, port, rest[13] & 0x12 == 2, rest[(rest[12] >> 4) * 4:])
    if protocol == UDP and len(rest) >= 8:
        sport, port = struct.unpack("!HH", rest[:4])
        return Packet(protocol, source, target, sport, port, False, rest[8:])
    return Packet(protocol, source, target, 0, 0, False, rest)


class Wire:
    MARK_PORT = 9

    def __init__(self, keep_data=512):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
        self._socket.setsockopt(socket.SOL_SOCKET, 33 if os.geteuid() == 0 else socket.SO_RCVBUF, 16 << 20)  # 33: SO_RCVBUFFORCE
        self._socket.bind(("lo", 0))
        self._packets, self._changed, self._keep = [], threading.Condition(), keep_data
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()

    def close(self):
        self._mark(b"end")
        self._thread.join()
        self._socket.close()

    def _record(self):
        while True:
            data, where = self._socket.recvfrom(65536)
            if where[2] != OUTGOING:
                continue
            try:
                packet = parse(data[:60 + self._keep])
            except (IndexError, struct.error):
                continue
            if packet is None:
                continue
            with self._changed:
                self._packets.append(packet)
                self._changed.notify_all()
            if packet.port == self.MARK_PORT and packet.data == b"end":
                return

    def _mark(self, text):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(text, ("127.0.0.1", self.MARK_PORT))

    def packets(self):
        """All so far, in order: what was sent before this call is in it, since a mark sent now has come by."""
        text = os.urandom(8)
        self._mark(text)
        with self._changed:
            if not self._changed.wait_for(lambda: any(p.data == text for p in reversed(self._packets)), 10):
                raise RuntimeError("the mark did not come by")
            if struct.unpack("II", self._socket.getsockopt(263, 6, 8))[1]:  # PACKET_STATISTICS
                raise RuntimeError("the record has gaps")
            return [p for p in self._packets if p.port != self.MARK_PORT and not (p.protocol == ICMP and p.target == "127.0.0.1")]

    def dialled(self):
        """(address, port) of every TCP connection that somebody began."""
        return {(p.target, p.port) for p in self.packets() if p.protocol == TCP and p.syn}

    def datagrams(self):
        return [p for p in self.packets() if p.protocol == UDP]

    def others(self):
        """Neither TCP nor UDP."""
        return [p for p in self.packets() if p.protocol not in (TCP, UDP)]
