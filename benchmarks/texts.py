"""The texts that the benchmarks share."""

import random
from collections.abc import Sequence

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


def by_language() -> dict[str, list[str]]:
    """The passages of each language."""
    return {"en": passages(ENGLISH, " "), "zh": passages(CHINESE, "")}
