"""The labelled claims that the offline checker is fitted and measured on, and the generated edits."""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edits import edits

from crag_middleware.stages.chinese import proper_names
from crag_middleware.stages.sentences import split
from crag_middleware.types import Language


@dataclass(frozen=True, slots=True)
class Item:
    """A claim, what it may rest on, and whether that supports it in full."""

    source: str
    lang: Language
    claim: str
    grounds: tuple[str, ...]
    supported: bool
    kind: str = ""

    @property
    def group(self) -> str:
        """What is kept together in cross-validation."""
        return self.grounds[0] if self.grounds else self.claim


_FILES = ("claims.jsonl", "claims_expertqa.jsonl", "handmade_claims.jsonl")
_LEFT_OUT = ("UHGEval", "HaluEval")
"""The supported side of UHGEval is a copy of its context; HaluEval has pairs of answers."""

TECHNICAL = """
Milvus 2.4.1 supports sparse vectors. The client library requires Python 3.10 or newer. Version 2.3.4 cannot read collections that were written by v2.5.0.
Upgrade to version 4.0.7 before March 31, 2025. Releases older than v3.2.0 will no longer receive security fixes after 90 days.
The default timeout is 30 seconds. A request may retry 3 times within 5 minutes, and files up to 25 MB can be uploaded to the Acme portal.
Refunds are paid within 14 days of the return. Shipping to Norway costs 12.50 EUR and takes 5 days; express delivery is not available on Sunday.
The Pro plan costs 49 USD per month and includes 500 GB of storage. Customers of Initech can cancel until 15 June 2024.
The sensor operates at 3.3 volts and weighs 120 g. Its battery lasts 18 hours, and firmware v1.12.3 must be installed before first use.
On Tuesday the board of Globex elected Maria Lindgren as chair. Revenue was 4.2 billion dollars in 2023, up 12 percent on the year.
Milvus 2.4.1 版本支持稀疏向量。客户端需要 Python 3.10 及以上版本，v2.5.0 写入的数据不支持用 2.3.4 版本读取。
请在 2025年3月31日前升级到 4.0.7 版本。v3.2.0 之前的版本在 90 天后不再提供安全更新。
默认超时时间为 30 秒，5 分钟内最多重试 3 次，单个文件可以上传 25 MB。
退款在退货后 14 天内到账。寄往杭州的运费为 12 元，需要 5 天，周日不提供加急配送。
专业版每月 49 元，包含 500 GB 存储空间。用户可以在2024年6月15日之前取消订阅。
传感器重 120 克，电池续航 18 小时，首次使用前需要安装固件 v1.12.3 版本。
正式员工每年享有 15 天带薪年假，未休完的可以结转 5 天，试用期员工不能申请。
"""
"""Passages with versions and units, which encyclopedias lack."""


def claims(folder: Path) -> Iterator[Item]:
    """The labelled claims; what is supported in part counts as not supported."""
    for name in _FILES:
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["source"].startswith(_LEFT_OUT):
                continue
            grounds = row.get("context") or row.get("evidence") or []
            source = row["source"].split()[0] if not row["source"].startswith("SafeRAG") else row["source"]
            kept = (grounds,) if isinstance(grounds, str) else tuple(grounds)
            yield Item(f"{source} {row['lang']}", row["lang"], row["claim"], kept, row["label"] == "supported")


def edited(folder: Path, *, passages: int = 150, seed: int = 0) -> Iterator[Item]:
    """Copied sentences and the same with one thing changed, of encyclopedic, business and technical passages; two sentences of each."""
    chance = random.Random(seed)
    for lang, text in _passages(folder, passages, chance):
        sentences = [strip.text for strip in split(text) if 12 <= len(strip.text) <= 300]
        for sentence in chance.sample(sentences, min(2, len(sentences))):
            yield Item(f"edits {lang}", lang, sentence, (text,), supported=True, kind="copy")
            names = tuple(proper_names(sentence)) if lang == "zh" else ()
            for edit in edits(sentence, chance, names=names):
                yield Item(f"edits {lang}", lang, edit.text, (text,), supported=False, kind=edit.kind)


def _passages(folder: Path, count: int, chance: random.Random) -> list[tuple[Language, str]]:
    found: dict[str, list[tuple[Language, str]]] = {"docs en": [], "docs zh": [], "cmrc": [], "HotpotQA": [], "CLAPnq": []}
    for row in _rows(folder / "dragonball_docs.jsonl"):
        found[f"docs {row['language']}"] += [(row["language"], part) for part in row["content"].split("\n") if len(part) > 60]
    found["cmrc"] = [("zh", row["context"]) for row in _rows(folder / "cmrc_contexts.jsonl")]
    for row in _rows(folder / "evidence.jsonl"):
        kind = row["source"].split()[0]
        if kind in found:
            found[kind] += [("en", " ".join(map(str.strip, passage["sentences"]))) for passage in row["passages"][:3]]
    picked = [passage for kept in found.values() for passage in chance.sample(kept, min(count, len(kept)))]
    technical: list[tuple[Language, str]] = [
        ("zh" if re.search("[\u4e00-\u9fff]", line) else "en", line) for line in TECHNICAL.strip().splitlines()
    ]
    return picked + technical * 3


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
