#!/usr/bin/env python3
"""Writes the seed corpus of the fuzz targets to tests/fuzz/corpus: what workers say, and a little of what none would."""
import pathlib
import struct

here = pathlib.Path(__file__).parent / "corpus"


def save(target, name, data):
    folder = here / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def frame(kind, channel=0, number=0, length=0, total=0, offset=0, sequence=0, prompt=0):
    return struct.pack("<HBBIIIQQQ", 0x5EA1, kind, prompt, channel, number, length, total, offset, sequence)


KINDS = {"data": 1, "taken": 2, "refused": 3, "withdrawn": 4, "failed": 5, "left": 6,
         "acknowledged": 7, "ask": 8, "answer": 9, "beat": 10, "widen": 11}
for kind, value in KINDS.items():
    save("frames", kind, frame(value, 3, 1, 0, 0, 5, 9 if value < 7 else 0))
save("frames", "part", frame(1, 3, 1, 1000, 65536 + 1000, 65536, 7, 1))
save("frames", "all", b"".join(frame(v, 1, 0, 0, 0, 1, i + 1 if v < 7 else 0) for i, v in enumerate(KINDS.values())))


# One step of the connection's target: a byte says what, then what that takes.
def step(what, channel=0, *more):
    return bytes([what + 16 * channel, *more])


def arrives(kind, number, total, part, ahead=0, channel=0):
    return step(11, channel, kind, number, total, part, ahead)


two = [arrives(2, n, 4, p) for n in range(2) for p in range(3)]
save("connection", "early", step(0, 0, 3) + b"".join(two) + step(2) + step(0, 0, 7) + step(2))
save("connection", "late", b"".join(two) + step(0, 0, 3) + step(2) + step(0, 0, 7) + step(2))
save("connection", "order", step(0, 0, 7) + arrives(2, 0, 4, 2) + arrives(2, 0, 4, 0, 1) + arrives(2, 0, 4, 1, 3))
save("connection", "stopped", step(0, 0, 3) + arrives(7, 0, 4, 0) + step(1) + arrives(2, 0, 4, 1))
save("connection", "broken", step(0, 0, 3) + arrives(7, 0, 4, 0) + step(7, 0, 0) + b"".join(two) + step(2))
save("connection", "posted", step(3, 0, 0xFF, 0x7F) + step(7, 0, 3) + step(3, 1, 8, 0) + step(7, 0, 1) + step(4) + step(7, 0, 0))
save("connection", "closed", step(3, 0, 0xFF, 0x7F) + step(5) + step(6) + step(8) + step(9) + arrives(2, 0, 1, 0))
save("connection", "raw", step(10, 0, 40, 0) + frame(10) + step(10, 0, 40, 0) + frame(8, offset=5))
for kind in range(160, 171):
    save("connection", f"kind{kind}", step(3, 0, 0xFF, 0x7F) + arrives(kind, 0, 1, 0) + step(8))

hello = struct.pack("<QI24sIIBB46sH16sIQ", 0x50435F4E49454B53, 2, b"0.1.0", 3, 8, 1, 0, b"10.0.0.3", 40000, b"r" * 16, 0, 0)
save("meeting", "hello", b"\0" + hello.ljust(128, b"\0"))
save("meeting", "resumes", b"\0" + hello[:-12] + struct.pack("<IQ", 3, 77))
save("meeting", "answer", b"\1" + struct.pack("<III", 0x414B5353, 2, 8).ljust(16, b"\0"))
save("meeting", "roster", bytes([2 + 5 * 2]) + b"r" * 16 + b"".join(struct.pack("<46sI", b"10.0.0.%d" % i, 4000 + i) for i in range(3)))
save("meeting", "received", b"\3" + struct.pack("<Q", 99))
save("meeting", "text", b"\4why not \x1b[2J\0more")


def message(kind, body):
    return struct.pack("<BI", kind, len(body)) + body


save("agent", "greeting", b"\0skein agent 0.1.0")
for which in range(6):
    save("agent", f"body{which}", bytes([2 * which]) + struct.pack("<I", 3) + b"abc" + struct.pack("<IQ", 7, 9) + b"\0" * 40)
save("agent", "messages", b"\x0f" + message(1, b"\3\0\0\0abc\1") + message(68, struct.pack("<I", 2) + b"\0hello") + message(70, b"\0" * 30))
save("agent", "cut", b"\3" + message(2, b"x" * 20)[:-5])
