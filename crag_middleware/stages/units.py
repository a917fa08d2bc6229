"""The units of amounts, English and Chinese, and what one is of its dimension's base: `60 min`, `1 h` and `1 小时` are one."""

import re
from fractions import Fraction

Unit = tuple[str, Fraction]
"""A dimension, and how many of its base one unit is."""

_TABLE = """
second 0.001: ms msec millisecond milliseconds 毫秒
second 1: s sec secs second seconds 秒 秒钟
second 60: min mins minute minutes 分钟
second 3600: h hr hrs hour hours 小时 钟头
second 86400: d day days 天 天时间
second 604800: week weeks 周 星期 礼拜
workday 1: workday workdays 工作日
month 1: month months 月
month 12: year years yr yrs 年 周年 岁
month 120: decade decades 年代
month 1200: century centuries 世纪
quarter 1: 季度
share 0.01: % percent per-cent
share 0.001: ‰
point 1: percentage-point percentage-points 百分点
metre 0.001: mm millimetre millimetres millimeter millimeters 毫米
metre 0.01: cm centimetre centimetres centimeter centimeters 厘米
metre 1: m metre metres meter meters 米
metre 1000: km kilometre kilometres kilometer kilometers 公里 千米
foot 1: ft foot feet 英尺
foot 5280: mi mile miles 英里
inch 1: inch inches 英寸
gram 0.001: mg milligram milligrams 毫克
gram 1: g gram grams 克
gram 500: 斤
gram 1000: kg kilogram kilograms kilo kilos 千克 公斤
gram 1000000: tonne tonnes ton tons 吨
pound 1: lb lbs
ounce 1: oz ounce ounces
litre 0.001: ml millilitre millilitres milliliter milliliters 毫升
litre 1: l litre litres liter liters 升
are 1: hectare hectares ha 公顷
acre 1: acre acres 英亩
mu 1: 亩
celsius 1: °c ℃ 摄氏度 degrees-celsius
fahrenheit 1: °f ℉ 华氏度 degrees-fahrenheit
byte 1: byte bytes 字节
kilobyte 1: kb
megabyte 1: mb 兆
gigabyte 1: gb
terabyte 1: tb
mebibyte 1: mib
gibibyte 1: gib
watt 1: w watt watts 瓦
watt 1000: kw kilowatt kilowatts 千瓦
watt 1000000: mw megawatt megawatts 兆瓦
watt-hour 1000: kwh 千瓦时
hertz 1: hz 赫兹
hertz 1000: khz
hertz 1000000: mhz 兆赫
hertz 1000000000: ghz
volt 1: v volt volts 伏
km/h 1: km/h kph
mph 1: mph
pixel 1: px pixel pixels 像素
USD 1: $ us$ usd dollar dollars us-dollars 美元 美金
USD 0.01: cent cents 美分
HKD 1: hk$ hkd 港元 港币
EUR 1: € eur euro euros 欧元
GBP 1: £ gbp pound pounds 英镑
CNY 1: ¥ cny rmb yuan renminbi 元 块钱 人民币 元人民币
JPY 1: jpy yen 日元 日圆
KRW 1: krw 韩元
time 1: times fold 倍
round 1: 次
"""
_UNITS: dict[str, Unit] = {
    name.replace("-", " "): (dimension, Fraction(factor))
    for line in _TABLE.strip().splitlines()
    for (dimension, factor), names in [(line.partition(": ")[0].split(), line.partition(": ")[2])]
    for name in names.split()
}
_CURRENCIES = r"US\$|HK\$|[$€£¥]|USD|EUR|GBP|RMB|CNY|JPY|HKD|人民币"
_NAMES = "|".join(re.escape(name).replace(r"\ ", r"[\s-]") for name in sorted(_UNITS, key=len, reverse=True))

PREFIX = rf"(?P<prefix>{_CURRENCIES})"
"""A currency before its number, as a pattern."""

_SUFFIX = re.compile(
    rf"\s?-?(?:(?:calendar|consecutive|full|whole|自然|整)\s?)?(?P<work>(?:business|working)[\s-]days?|个?工作日)"
    rf"|\s?-?(?:(?:calendar|consecutive|full|whole|自然|整)\s?)?个?多?(?P<unit>{_NAMES})(?![A-Za-z])(?<!年)(?:\s?old\b)?"
    rf"|(?P<years>\s?年)(?![级代轮])",
    re.IGNORECASE,
)
_CAPITALS = frozenset("SHGMDLT")
"""Letters that are a unit only when small: `5G` and `4K` are names, `5 M` is millions."""


def unit_after(text: str, at: int) -> tuple[Unit, int] | None:
    """The unit that begins at a place, and where it ends."""
    match = _SUFFIX.match(text, at)
    if match is None or (match["unit"] or "") in _CAPITALS:
        return None
    name = "工作日" if match["work"] else "年" if match["years"] else re.sub(r"[\s-]", " ", match["unit"].casefold())
    return _UNITS[name], match.end()


def currency(prefix: str) -> Unit:
    """The unit of a currency sign or code."""
    return _UNITS[prefix.casefold()]
