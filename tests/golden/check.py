#!/usr/bin/env python3
"""Computes every golden vector again, from the rules of docs/protocol.md alone.

Needs Python 3.8 or later and the package `blake3`. Shares no code with the product: where this and
tests/golden.rs agree with vectors.json, the page says what the code does.
"""

import ipaddress
import json
import re
import sys
from pathlib import Path

from blake3 import blake3

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "protocol.md"
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

# Section 5: type, minimum length (0: fields and MAC exactly), fields after the 8-byte header.
# A field is (name, form): a number is a big-endian integer of that many bytes, "hex8" is bytes given as
# hexadecimal, "zero3" is reserved, "end" an endpoint, "ends" two of them, "rest" what is left.
PROOF = [("key_id", "hex32"), ("cookie", "hex24"), ("session", "hex8"), ("sequence", 8)]
LAYOUTS = {
    "HELLO": (0x01, 160, [("key_id", "hex32"), ("nonce", "hex8")]),
    "PRESENCE": (0x02, 160, PROOF),
    "BIND": (0x03, 352, PROOF + [
        ("attempt", "hex16"), ("rtt_ms", 2), ("", "zero2"), ("second", "end"), ("second_cookie", "hex24"),
        ("lan", "ends"), ("probe_cookie", "hex24")]),
    "REPORT": (0x04, 128, PROOF + [
        ("attempt", "hex16"), ("result", 1), ("", "zero1"), ("rtt_ms", 2), ("", "zero4")]),
    "BYE": (0x05, 128, PROOF),
    "PUNCH": (0x41, 0, [("attempt", "hex16"), ("role", 1), ("heard", 1), ("", "zero2"), ("ordinal", 4)]),
    "MESSAGE": (0x42, 0, [("attempt", "hex16"), ("role", 1), ("", "zero3"), ("ordinal", 4), ("payload", "rest")]),
    "CHALLENGE": (0x81, 0, [("nonce", "hex8"), ("instance", "hex8"), ("cookie", "hex24")]),
    "ACK": (0x82, 0, [
        ("session", "hex8"), ("sequence", 8), ("cookie", "hex24"), ("code", 1), ("detail", 1), ("flags", 1),
        ("", "zero1"), ("lease_remaining_ms", 4), ("presence_remaining_ms", 4), ("refresh_ms", 4)]),
    "NOTICE": (0x83, 0, [
        ("attempt", "hex16"), ("cookie", "hex24"), ("remaining_ms", 4), ("ordinal", 1), ("", "zero3")]),
    "BOUND": (0x84, 0, [
        ("session", "hex8"), ("sequence", 8), ("attempt", "hex16"), ("cookie", "hex24"), ("code", 1),
        ("detail", 1), ("flags", 1), ("", "zero1"), ("remaining_ms", 4), ("retry_ms", 4)]),
    "INTRODUCE": (0x85, 0, [
        ("attempt", "hex16"), ("peer", "end"), ("peer_second", "end"), ("lan", "ends"),
        ("punch_masked", "hex16"), ("start_in_ms", 2), ("retry_ms", 2), ("retry_max", 1), ("", "zero3"),
        ("cookie", "hex24")]),
}
DIRECTIONS = {kind: "c2s" if number < 0x40 else "p2p" if number < 0x80 else "s2c"
              for kind, (number, _, _) in LAYOUTS.items()}

# Section 4.2: host's side, joiner's side.
SECRETS = {
    "HELLO": ("presence_secret", "joiner_secret"),
    "CHALLENGE": ("none", "none"),
    "PRESENCE": ("presence_secret", None),
    "NOTICE": ("presence_secret", None),
    "BYE": ("presence_secret", None),
    "BIND": ("attempt_right", "joiner_secret"),
    "BOUND": ("attempt_right", "joiner_secret"),
    "INTRODUCE": ("attempt_right", "joiner_secret"),
    "REPORT": ("attempt_right", "joiner_secret"),
    "PUNCH": ("peer_key", "peer_key"),
    "MESSAGE": ("peer_key", "peer_key"),
}


def derive(key, use, data):
    domain = b"rendezvous/1 " + use
    assert len(domain) == 16
    return blake3(domain + data, key=key).digest()


def id_bytes(text):
    number = 0
    for digit in text[4:].lower():
        number = number * 32 + ALPHABET.index(digit)
    assert len(text) == 30 and number % 4 == 0
    return (number // 4).to_bytes(16, "big")


def id_text(prefix, raw):
    number = int.from_bytes(raw, "big") * 4
    digits = ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        digits = ALPHABET[digit] + digits
    return prefix + digits


def endpoint(text):
    if not text:
        return bytes(18)
    host, port = text.rsplit(":", 1)
    address = ipaddress.ip_address(host.strip("[]"))
    raw = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
    return raw + int(port).to_bytes(2, "big")


def field(form, value):
    if isinstance(form, int):
        return value.to_bytes(form, "big")
    if form == "end":
        return endpoint(value)
    if form == "ends":
        assert len(value) == 2
        return b"".join(endpoint(it) for it in value)
    if form == "rest":
        return bytes.fromhex(value)
    word, size = re.fullmatch(r"(hex|zero)(\d+)", form).groups()
    raw = bytes.fromhex(value) if word == "hex" else bytes(int(size))
    assert len(raw) == int(size)
    return raw


def datagram(kind, fields, length, secret):
    number, length_min, layout = LAYOUTS[kind]
    named = {name for name, _ in layout if name}
    assert named == set(fields), (kind, named ^ set(fields))
    body = b"".join(field(form, fields.get(name)) for name, form in layout)
    mac_length = 0 if kind == "CHALLENGE" else 16
    if not length_min:
        assert length == 8 + len(body) + mac_length
    assert max(length_min, 8 + len(body) + mac_length) <= length <= 1200
    covered = b"RDVZ" + bytes([1, number]) + length.to_bytes(2, "big") + body
    covered += bytes(length - mac_length - len(covered))
    if kind == "CHALLENGE":
        return covered
    return covered + derive(secret, DIRECTIONS[kind].encode(), covered)[:16]


class Check:
    def __init__(self):
        self.done = 0

    def same(self, what, computed, expected):
        if computed != expected:
            sys.exit(f"{what}:\n  computed {computed}\n  expected {expected}")
        self.done += 1


def derived_keys(given):
    """Section 4, from the master key, the key ids and the attempt."""
    raw = {name: bytes.fromhex(given[name]) for name in ("master_key", "host_key_id", "joiner_key_id", "attempt")}
    presence = derive(raw["master_key"], b"key", raw["host_key_id"])
    punch = derive(raw["master_key"], b"pch", raw["attempt"])[:16]
    return {
        "presence_secret": presence,
        "joiner_secret": derive(raw["master_key"], b"key", raw["joiner_key_id"]),
        "attempt_right": derive(presence, b"rgt", raw["attempt"]),
        "punch_secret": punch,
        "peer_key": blake3(b"rendezvous/1 pky" + punch).digest(),
    }


def check_datagram(check, it, secrets):
    kind, fields = it["kind"], it["fields"]
    check.same(f"{it['name']}: direction", DIRECTIONS[kind], it["direction"])
    if kind == "ACK":  # with the secret of what it answers
        assert it["secret"] in ("presence_secret", "attempt_right", "joiner_secret")
    else:
        assert it["secret"] in SECRETS[kind], it["name"]
    if "key_id" in fields:  # role 1 is the host
        side = int(fields["key_id"][:2], 16) - 1
        check.same(f"{it['name']}: secret", it["secret"], SECRETS[kind][side])
    made = datagram(kind, fields, it["len"], secrets.get(it["secret"]))
    check.same(it["name"], made.hex(), it["hex"])
    if kind == "INTRODUCE":
        mask = derive(secrets[it["secret"]], b"msk", bytes.fromhex(fields["attempt"]))
        punch = bytes(a ^ b for a, b in zip(bytes.fromhex(fields["punch_masked"]), mask))
        check.same(f"{it['name']}: punch secret", punch, secrets["punch_secret"])


def check_tables(check, tables, page):
    """Section 6, read from the page itself."""
    section = page.split("## 6 ")[1].split("## 7 ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines() if re.match(r"\| *\d", line)]
    codes = {row[1]: int(row[0]) for row in rows if len(row) == 3}
    check.same("codes", codes, tables["code"])
    for column, name in enumerate(["conflict", "capacity_exceeded", "quota_exceeded"], 1):
        details = {row[column]: int(row[0]) for row in rows if len(row) == 4 and row[column]}
        del details["not stated"]
        check.same(f"details of {name}", details, tables[f"detail_{name}"])
    line = section.split("`result` in REPORT:")[1].split("No other value")[0]
    results = {word: int(number) for number, word in re.findall(r"(\d) ([a-z_]+)", line)}
    check.same("results", results, tables["report_result"])


def check_page(check, vectors, page):
    """The values that the page shows are those of the vectors."""
    worked = page.split("## 17 ")[1]
    dump = ""
    for offset, line, times in re.findall(r"^ *(\d+)  ((?:[0-9a-f]{2} ?)+)(?:× (\d+))?", worked, re.M):
        check.same("an offset of the worked PRESENCE", int(offset) * 2, len(dump))
        dump += line.replace(" ", "") * int(times or 1)
    presence = next(it for it in vectors["datagrams"] if it["name"] == "presence")
    check.same("the worked PRESENCE", dump, presence["hex"])
    for name in ("presence_secret", "attempt_right", "punch_secret", "peer_key"):
        check.same(f"{name} on the page", vectors["keys"][name] in worked, True)
    for mask in vectors["masks"]:
        check.same("a mask on the page", mask["masked"] in worked, True)
    for name in ("host_key_id", "joiner_key_id", "joiner_secret"):
        check.same(f"{name} on the page", f'"{vectors["keys"][name]}"' in page, True)
    for it in vectors["ids"][-3:]:
        check.same("an id on the page", it["text"] in page, True)
    for block in re.findall(r"```json\n(.*?)```", page, re.S):
        json.loads(block.replace("…", ""))
        check.done += 1
    for number, kind, fields_end, length_min in re.findall(
            r"^\| 0x(\w\w) \| (\w+) \| [^|]* \| (\d+)[^|]* \| (\d+) \|", page, re.M):
        layout_number, layout_min, layout = LAYOUTS[kind]
        sizes = [form if isinstance(form, int) else {"end": 18, "ends": 36, "rest": 0}.get(form)
                 if form in ("end", "ends", "rest") else int(re.sub(r"\D", "", form)) for _, form in layout]
        end = 8 + sum(sizes)
        exact = end + (0 if kind == "CHALLENGE" else 16)
        check.same(f"{kind} in the table of types", (int(number, 16), int(fields_end), int(length_min)),
                   (layout_number, end, layout_min or exact))


def main():
    vectors = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    check = Check()
    for it in vectors["ids"]:
        check.same(it["text"], id_bytes(it["text"]).hex(), it["bytes"])
        check.same(it["bytes"], id_text(it["text"][:4], bytes.fromhex(it["bytes"])), it["text"])
    for it in vectors["key_ids"]:
        made = (bytes([it["role"], 0, 0, 0]) + it["tenant"].to_bytes(4, "big") + bytes.fromhex(it["instance"])
                + bytes.fromhex(it["handle"]) + it["expires_ms"].to_bytes(8, "big"))
        check.same(f"key id of the {it['name']}", made.hex(), it["hex"])
        check.same("its place among the keys", vectors["keys"][f"{it['name']}_key_id"], it["hex"])
    secrets = derived_keys(vectors["keys"])
    for name, secret in secrets.items():
        check.same(name, secret.hex(), vectors["keys"][name])
    for it in vectors["masks"]:
        pad = derive(secrets[it["secret"]], b"msk", bytes.fromhex(it["attempt"]))
        masked = bytes(a ^ b for a, b in zip(bytes.fromhex(it["punch_secret"]), pad))
        check.same(f"mask from {it['secret']}", masked.hex(), it["masked"])
    for it in vectors["datagrams"]:
        check_datagram(check, it, secrets)
    assert {it["kind"] for it in vectors["datagrams"]} == set(LAYOUTS), "a type has no vector"
    check_tables(check, vectors["tables"], page)
    check_page(check, vectors, page)
    print(f"{check.done} values computed from docs/protocol.md, {len(vectors['datagrams'])} datagrams among them: all equal")


if __name__ == "__main__":
    main()
