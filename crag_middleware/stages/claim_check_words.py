"""Words that turn a statement into its opposite, English and Chinese."""

import re
from collections.abc import Iterator

_PAIRS = """
increase increased increases increasing rise rises rose risen rising grow grows grew grown growing up gain gained climb climbed - decrease \
decreased decreases decreasing fall falls fell fallen falling drop dropped drops decline declined declines shrink shrank down lose lost
raise raised raises improve improved improves - lower lowered reduce reduced reduces worsen worsened
more higher greater larger longer faster most highest largest longest above over exceed exceeds exceeded - less lower fewer smaller shorter \
slower least lowest smallest shortest below under
before earlier prior - after later following
first - last second final
open opens opened reopen reopened - close closed closes closing shut
allow allowed allows permit permitted permits may can able accept accepted accepts - forbid forbidden forbids prohibit prohibited prohibits \
deny denied refuse refused refuses reject rejected rejects
enable enabled enables on - disable disabled disables off
include included includes including with - exclude excluded excludes excluding without except
always every all everyone each daily - never none nobody no
always all every - some sometimes partly rarely occasionally
required require requires mandatory compulsory must - optional voluntary unnecessary
start started starts begin began begins - stop stopped stops end ended ends cease ceased
win won wins beat defeated - lose lost loses
success successful succeed succeeded succeeds - failure failed fail fails unsuccessful
support supported supports agree agreed favour - oppose opposed opposes disagree disagreed against
positive benefit beneficial advantage safe - negative harm harmful disadvantage dangerous unsafe
true correct right - false incorrect wrong
male man men boy his father son husband brother - female woman women girl her mother daughter wife sister
north northern - south southern
east eastern - west western
left - right
inside internal indoor - outside external outdoor
public - private
free - paid
buy bought buys purchase purchased - sell sold sells
import imported imports - export exported exports
minimum min - maximum max
best better - worst worse
add added adds keep keeps kept retain retained - remove removed removes delete deleted deletes
approve approved approves - reject rejected rejects
hot warm - cold cool
old older oldest - new newer newest young younger youngest
single alone sole - joint together several multiple
temporary - permanent
manual manually - automatic automatically
online - offline
legal - illegal
possible - impossible
likely - unlikely
recommended recommend recommends - avoid avoided avoids
增加 增长 上升 上涨 提高 提升 升高 扩大 增强 加快 加强 回升 - 减少 下降 下跌 降低 缩小 减弱 放缓 削弱 回落 降至 缩减
以上 高于 大于 多于 超过 超 - 以下 低于 小于 少于 不足 未满
最大 最高 最多 最长 最好 最早 - 最小 最低 最少 最短 最差 最晚
之前 以前 前 - 之后 以后 后
首次 第一次 - 最后一次 再次
允许 可以 准许 支持 - 禁止 不得 不准 严禁 拒绝 不允许
必须 需要 应当 - 无需 不必 无须 可选
开启 启用 打开 开放 - 关闭 禁用 停用 封闭 闭馆
全部 所有 都 每个 每天 均 - 部分 个别 少数 一些
多数 - 少数
成功 - 失败 未能
赞成 同意 支持 - 反对 否决
优于 好于 领先 - 劣于 差于 落后
有利 利好 积极 安全 - 不利 利空 消极 危险
公开 - 秘密 非公开
国内 - 国外 海外 境外
内部 - 外部
上午 - 下午
东 - 西
南 - 北
左 - 右
男 男性 - 女 女性
进口 - 出口
买入 购买 - 卖出 出售
收入 - 支出
盈利 - 亏损
免费 - 收费 付费
自动 - 手动 人工
线上 - 线下
临时 - 永久 长期
同步 - 异步
单机 - 分布式 集群
推荐 建议 - 避免 不建议
延长 推迟 - 缩短 提前
减轻 缓解 - 加重 加剧
合法 - 非法 违法
真实 - 虚假
正式 - 非正式 试用
简单 - 复杂
快 - 慢
强 - 弱
"""
_HAN = re.compile("[\u3400-\u9fff]")


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in _PAIRS.strip().splitlines():
        one, _, other = line.partition(" - ")
        for here, there in ((one.split(), other.split()), (other.split(), one.split())):
            for word in here:
                found.setdefault(word, set()).update(there)
    return {word: frozenset(others) for word, others in found.items()}


OPPOSITES = _opposites()
"""For each word those that say the opposite of it."""

_LATIN = re.compile(r"[a-z]+")
_LONG_HAN = tuple(sorted((word for word in OPPOSITES if _HAN.match(word) and len(word) > 1), key=len, reverse=True))


def charged(text: str) -> frozenset[str]:
    """The words of a folded text that have an opposite; of Chinese ones those of two characters and more."""
    return frozenset(_charged(text))


def _charged(text: str) -> Iterator[str]:
    yield from OPPOSITES.keys() & set(_LATIN.findall(text))
    if _HAN.search(text):
        yield from (word for word in _LONG_HAN if word in text)


def opposed(claim: frozenset[str], ground: frozenset[str]) -> bool:
    """Whether the claim has a word that the ground lacks, and the ground an opposite of it that the claim lacks."""
    return any(not OPPOSITES[word].isdisjoint(ground - claim) for word in claim - ground)
