"""How answers greet, refuse, doubt and give orders, English and Chinese: what of them is no claim."""

import re

from crag_middleware.stages.stops import HAN

GREETING = re.compile(
    r"""\W*(?:(?:
        hi|hello|hey|good\s(?:morning|afternoon|evening|day)|greetings|welcome|bonjour|salut|hola|hallo|guten\stag|ciao|dear\s\w+
      | (?:many\s)?thanks?(?:\s(?:you|a\slot|so\smuch|again|for\s[^.!?]{1,60}))*|you(?:['’]re|\sare)\swelcome|no\sproblem|my\spleasure|cheers|bye
        |goodbye|take\scare
      | yes|no|yeah|nope|sure|of\scourse|certainly|absolutely|great(?:\squestion)?|good\squestion|okay|ok|got\sit|understood|right|indeed|exactly
      | sorry|apologies|(?:i\sam|i['’]m|we\sare)\s(?:very\s|so\s)?sorry|i\sapologi[sz]e|unfortunately
      | (?:i\s)?hope\s(?:this|that|it)\s[^.!?]{1,40}|have\sa\s[^.!?]{1,30}|there
      | 您好|你好|大家好|早上好|下午好|晚上好|欢迎\w{0,8}|嗨|谢谢\w{0,10}|感谢\w{0,14}|多谢|不客气|不用谢|再见|祝\w{1,12}|亲爱的\w{1,6}
      | 是|是的|对|对的|不|不是|不是的|没有|有的|可以的?|当然(?:可以)?|好|好的|好问题|没问题|明白了?|抱歉|非常抱歉|很抱歉|对不起|不好意思
        |遗憾的是|很遗憾|希望\w{0,6}(?:帮助|帮到)\w{0,4}
    )(?:\W+|\Z))+""",
    re.IGNORECASE | re.VERBOSE,
)
"""What opens or closes a talk, or says yes or no to what was asked."""

_MATTER = (
    r"(?:documents?|documentation|docs|sources?|contexts?|materials?|passages?|evidence|knowledge\sbase|excerpts?|search\sresults?"
    r"|(?:provided|available|given|supplied|retrieved)\s(?:information|texts?|data|results?|files?|articles?))"
)
REFUSAL = re.compile(
    rf"""
    \b(?:i|we)(?:['’](?:m|re)|\sam|\sare|\swas|\swere)?\s(?:(?:could|can|did|do|was|were|have)\s?(?:not|n['’]t)|can(?:not|['’]t)|am\snot|not
      |unable|afraid)\b
      (?=[^.]{{0,60}}\b(?:find|found|locate|answer|know|determine|confirm|verify|tell|say|sure|certain|seen?)\b)
  | \bi(?:['’]m|\sam)?\s(?:(?:could|can|do|am)\s?(?:not|n['’]t)|can(?:not|['’]t)|not|unable|afraid)\b
      (?=[^.]{{0,60}}\b(?:provide|help|able|access|give|share|assist|comment|have)\b|[\s.!]*\Z)
  | \b(?:i|we)\s(?:(?:have|found|see|find)\sno|do(?:\snot|n['’]t)\shave)\s(?:[\w-]+\s){{0,2}}(?:information|details?|data|access|answers?
    |evidence|records?|documents?|sources?|mention)\b
  | \b(?:i['’]m|i\sam|we['’]re)\s(?:not\s(?:sure|certain|aware)|unsure|unable)\b
  | \b{_MATTER}\b[^.]{{0,60}}\b(?:(?:do|does|did)\s?(?:not|n['’]t)|never|fails?\sto)\s(?:\w+\s)?(?:mention|contain|say|state|specify|include
    |provide|cover|answer|address|give|discuss|tell|describe|list|have)
  | \b(?:is|are|was|were)(?:n['’]t|\s(?:not|nowhere))\s(?:mentioned|specified|stated|covered|included|available|provided|found|given|described
    |discussed|addressed)\b
      [^.]{{0,20}}\b(?:in|by|from)\s(?:the|my|our|these|any|this)\s[^.]{{0,20}}{_MATTER}\b
  | \b(?:there\s(?:is|are|was|were)\s)?no\s(?:[\w-]+\s){{0,2}}(?:information|mention|answer|evidence|results?|documents?|sources?|data
    |details?)\b[^.]{{0,40}}
      \b(?:found|available|provided|given|about|on|regarding|in\sthe)\b
  | \b(?:unable|not\sable)\sto\s(?:find|answer|locate|determine|confirm|say)
  | \bas\san\s(?:ai|assistant|language\smodel)\b
  | (?:资料|文档|上下文|材料|知识库|检索结果|搜索结果|证据|段落|文中|原文|(?:提供|已知|现有|当前|检索到)的?(?:信息|内容
    |文件))[^，。；]{{0,14}}(?:没有|未|无|不|没)[^，。；]{{0,10}}
      (?:提到|提及|包含|说明|找到|查到|相关|涉及|给出|记载|信息|内容|答案|提供|回答|覆盖|明确|具体|足)
  | (?:信息|内容|文件|手册|来源|参考)(?:中|里|内)?(?:并)?(?:没有|未|无)[^，。；]{{0,6}}(?:提到|提及|包含|说明|涉及|记载|给出|相关)
  | (?:\A|(?<=[，,。；;：:\s]))(?:抱歉|很?遗憾)?[，,]?\s?(?:我们?|本助手|目前|暂时|暂|因此|所以|这里|这个问题我?|对此我?|就此)*(?:无法|不能|未能
    |没有|没能|没|未|暂无|无)(?:够|办法)?
      (?:从[^，。]{{1,14}}中?)?(?:在[^，。]{{1,14}}中?)?(?:找到|查到|检索到|搜索到|回答|解答|确定|确认|判断|提供|给出|得知|获知|相关)
  | 我们?(?:也|并|还|暂时)?不(?:太|是很)?(?:知道|清楚|确定|了解|掌握)
  | (?:\A|(?<=[，,]))\W*(?:不知道|不清楚|不确定|未知)\W*\Z
  | 作为(?:一个|一名)?(?:ai|人工智能|语言模型|智能助手)
    """,
    re.IGNORECASE | re.VERBOSE,
)
PREAMBLE = re.compile(
    r"""\s*(?:
        (?:i|we)\s(?:think|believe|guess|suppose|understand|assume|would\ssay)(?:\sthat)?(?=\s)
      | (?:please\s)?(?:note|remember|keep\sin\smind|be\saware)(?:\sthat)?(?=[\s:,])[:,]? | it\sseems\sthat | in\sshort, | so,
      | 我(?:们)?(?:认为|觉得|想|猜)[，,]? | (?:请|需)?(?:注意|留意|记住)(?:的是)?[，,：:] | 需要(?:注意|说明)的是[，,：:]? | 总之[，,]
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_VERBS = (
    "contact|see|refer|check|visit|call|email|e-mail|ask|consult|try|let|feel|click|go|open|select|choose|ensure|make|use|run|follow|keep|be|do|"
    "don['’]t|consider|provide|share|tell|read|review|look|log|sign|enter|type|install|restart|reboot|update|set|add|remove|save|download|copy|wait|"
    "confirm|verify|reach|give|send|submit|press|navigate|specify|rephrase|clarify|take|put|start|turn|switch|find|double-check|reload"
)
ORDER = re.compile(
    rf"""\W*(?:
        (?:if\s[^,]{{1,90}},\s|otherwise,\s|then,?\s|next,?\s|first,?\s|finally,?\s|to\s[^,]{{1,60}},\s|for\s(?:more|further)\s[^,]{{1,50}},\s
          |instead,\s)?
        (?: please\b | kindly\b
          | (?:{_VERBS})\s(?=(?:the|your|our|an?|us|it|this|that|these|to|on|at|in|with|for|me|them|up|out|sure|if|whether|over|into|free|not
            |support|customer|back|any|more|again)\b|(?-i:[A-Z])|["'`\[“])
          | you\s(?:might|may|could|should|can)\s(?:also\s|always\s|then\s)?(?:want|wish|like|consider|try|contact|check|refer|reach|ask|visit
            |consult|find\smore)\b
          | i\s(?:can|could|will|would|am\s(?:here|happy|glad))\b | (?:i|we)\s(?:would\s)?(?:recommend|suggest|advise)\b
          | i['’](?:ll|d|m\s(?:here|happy|glad))\b | (?:let\sme|feel\sfree|allow\sme)\b | it\s(?:is|might\sbe|may\sbe|would\sbe)\s(?:best|better
            |advisable|a\sgood\sidea)\b
          | (?:here|below)\s(?:is|are)\b | here['’]s\b )
      | (?:如果?(?:您|你)?(?:需要?|有|想|仍有?|还有?|要)[^，,。]{{0,40}}[，,]\s*|此外[，,]|另外[，,]|否则[，,]|然后[，,]?|最后[，,]?|首先[，,]?)*
        (?: 请(?!求|假|示|客|款|柬) | 烦请 | 麻烦 | 务必 | 欢迎 | (?:我们?)?建议(?:您|你|先|咨询|联系|参考|查看|直接) | (?:您|你)?(?:也
          |还)?可以?(?:尝试|考虑|联系|咨询|参考|查看|查阅|参阅|访问|拨打)
          | (?:您|你)(?:可能|也许)(?:想|需要|要) | 我(?:会|将|可以|来|很乐意|能)(?:为|帮|协助|继续|尽|再) | 以下是 | 下面是 | 让我 | 点击
            | 希望(?:以上|这些|这|能|对) | 联系(?:我们|客服|人工)
          | 如(?:果)?(?:您|你)?(?:需|有|想|还)[^，,。]{{0,30}}\Z )
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Tells the user what to do, or what the answerer does."""

TURN = re.compile(
    r"[;；]\s*|[,;，；:：—–-]*\s*(?<![A-Za-z])(?:but|however|although|though|yet|that\ssaid|nevertheless)\b,?\s+"
    rf"|[，,；;。]\s*(?:但是?|不过|然而|可是|只是)[，,]?\s*(?=[{HAN}A-Za-z\d])",
    re.IGNORECASE,
)
"""Where a sentence turns from refusing to asserting, or back."""
