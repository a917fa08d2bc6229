"""What splitting and picking strips costs: 20 passages of 800 characters, English and Chinese, and the rate on long texts.

    python benchmarks/refine.py [--repeat 50]

Prints the least milliseconds over all repeats, which is the figure that other load on the machine disturbs least. `first` is the first call on texts whose
words were never seen before.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence

from crag_middleware.stages.refine import select
from crag_middleware.stages.sentences import split

ENGLISH = (
    "The exporter of build {n} listens on port {n}100 unless the flag --port says otherwise.",
    "It needs no root rights, but its configuration file pkg.settings.yaml must be readable by the service account.",
    "Since v{n}.4.2 the metrics are kept for approx. 30 days, i.e. longer than before.",
    "Refunds are paid within seven days after the returned goods have reached the warehouse in Lima.",
    "Dr. Lee wrote the first version of the guide in 2019; customers of the enterprise plan may ask for a copy.",
)
CHINESE = (
    "第{n}版导出器默认监听{n}100端口，除非启动参数另有规定。",
    "运行它不需要管理员权限，但配置文件 pkg.settings.yaml 必须可读。",
    "自 v{n}.4.2 起，监控指标保留约三十天，比以前更久。",
    "退货商品到达仓库之后，我们会在七天之内把款项退回原支付账户。",
    "企业版客户可以向客服索取安装手册，联系方式见官网。",
)
QUESTIONS = {"en": "Which port does the exporter of build 7 listen on?", "zh": "第7版导出器监听哪个端口？"}


def passages(sentences: Sequence[str], glue: str) -> list[str]:
    """Twenty different passages of 800 characters."""
    rng = random.Random(7)
    return [glue.join(rng.choice(sentences).format(n=n) for _ in range(60))[:800] for n in range(20)]


def least_ms(call: Callable[[], object], repeat: int) -> float:
    """The least time of one call."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1000 * min(times)


def main() -> None:
    """Prints one line a language and one a text of a million characters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=50)
    repeat = parser.parse_args().repeat
    texts = {"en": passages(ENGLISH, " "), "zh": passages(CHINESE, "")}
    for language, question in QUESTIONS.items():
        first = least_ms(lambda q=question, t=texts[language]: select(q, t, max_strips=3), 1)
        whole = least_ms(lambda q=question, t=texts[language]: select(q, t, max_strips=3), repeat)
        splitting = least_ms(lambda t=texts[language]: [split(text) for text in t], repeat)
        strips = sum(len(split(text)) for text in texts[language])
        print(f"{language}: split and select {whole:.2f} ms (first {first:.2f} ms), split alone {splitting:.2f} ms, {strips} strips")
    longs = {
        "en": " ".join(texts["en"] * 63),
        "zh": "".join(texts["zh"] * 63),
        "dots": "." * 10**6,
        "brackets": "[" * 10**6,
        "quotes": "“a. " * 250_000,
    }
    for name, text in longs.items():
        print(f"{name}, {len(text):,} characters: split {least_ms(lambda t=text: split(t), 3):.0f} ms")


if __name__ == "__main__":
    main()
