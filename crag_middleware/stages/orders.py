"""How orders to a model are worded: signs of several kinds, each with a weight.

Weights are log-odds set by hand, on public collections of attacks and of harmless texts with the same words (tools/injection/measure.py): 3 and more for what
a text hardly says unless it speaks to a model, less for what proves nothing alone. No text of those collections stands here.
"""

_40, _80 = (rf"(?:[^.!?。\n]|\.(?=\w)){{0,{most}}}?" for most in (40, 80))
"""What may stand between two words of one sentence."""

_RULES = (
    r"(?:instruct\w*|prompts?|directives?|guidelines?|guardrails?|safeguards?|rules?|polic(?:y|ies)|restrictions?|constraints?|commands?|orders|protocols?"
    r"|programming|training|task|system messages?)\b"
)
_EARLIER = r"\b(?:all|any|every|previous|prior|above|earlier|preceding|past|former|foregoing|your|my|system|developer|operator|safety|original|initial)\b"
_OUTPUT = r"(?:answers?|responses?|repl(?:y|ies)|outputs?|summary|summaries)\b"
_MODEL = (
    r"(?:ais?|a\.i\.|llms?|(?:large )?language models?|(?:ai |virtual |digital )?assistants?|chat ?bots?|(?:chat)?gpt[\w-]{0,12}|(?:ai )?agents?"
    r"|ai (?:system|model)s?)\b"
)
_DROP = (
    r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|es|ing)|supersed(?:e|es|ing)|bypass|neglect|discard|abandon|stop following|set aside"
    r"|pay no attention to|(?:do not|don't|never|need not) (?:follow|obey|comply with|adhere to))\b"
)
_CHANGE = (
    r"\b(?:add|append|attach|include|insert|embed|integrate|incorporate|weave|mention|put|place|start|begin|end|finish|conclude|prefix|close|open"
    r"|modify|change"
    r"|alter|enhance|augment|enrich|adjust|rewrite|format|convert|render|encode|scramble|rearrange|reverse|replace|remove|substitute|group|misspell|introduce"
    r"|provide|present|phrase|craft|infuse|promote|anagram|jumble|swap|shuffle|mix|split|omit|drop|express|compose|translate|repeat|use|write|give|make|slip"
    r"|inject|combine|merge|shift|transform|alternate|capitali[sz]e|spell|delete|blend|supplement|tailor|frame|pepper|fill|respond|ensure|conceal)\b"
)
_TELL = (
    r"\b(?:reveal|print|show|repeat|output|display|tell|leak|dump|disclose|expose|share|recite|reproduce|copy|list|paste|give|summar\w+|quote"
    r"|translate|append"
    r"|include|add|send|what (?:is|are|was|were))\b"
)
_SEND = r"(?<![.\w])(?:send|forward|(?:e-?)?mail|post|upload|transmit|exfiltrate|transfer|wire|submit|copy|deliver|share|report|bcc|cc)\b(?! of\b)"
_ADDRESS = r"(?:[\w+-]@[\w-]+\.\w|https?://)"
_READ = (
    r"(?:summari[sz]|process|read|review|handl|analy[sz]|answer|respond|repl|translat|display|present|index|generat|prepar|writ|see|encounter|load|open|cit"
    r"|quot|mention|discuss)(?:e|y|ing|ying)?\b"
)
_ORDER = (
    r"(?:also|always|please|first|mention|state|say|include|add|append|e-?mail|send|forward|post|call|use|make sure|ensure|do not|don't|never|recommend|treat"
    r"|report|tell|output|replace|follow|skip|mark|set|run|execute|ignore|reveal|start|begin|end|print|return|claim|describe|rate|deny|refuse|direct"
    r"|give|insert)\b"
)
_SPOILED_EN = r"\b(?:false|fabricated|unsafe|harmful|misleading|distorted|untrue|incorrect|unreliable|malicious|poisoned|fake|outdated)\b"
_SPOILED_ZH = r"(?:歪曲|虚假|错误|伪造|不实|有害|不安全|可信|可靠|误导|违规|捏造|失实|篡改|恶意|敏感|污染|作废|失效|无效)"
_LEAVE_ZH = r"(?:忽略|无视|忘记|忘掉|不用管|不要管|不要理会|无需理会|抛开|绕过|跳过|推翻|不再遵[守循]|不要遵[守循]|停止遵[守循])"
_EARLIER_ZH = r"(?:以上|上述|上面|之前|先前|此前|前面|前文|所有|全部|一切|任何|系统|原[有来本先]|你的|既定)"
_RULES_ZH = r"(?:指令|指示|提示|规则|命令|要求|设定|约束|限制|内容|准则|对话|任务)"
_MODEL_ZH = r"(?:ai|人工智能|大?语言模型|大模型|智能助手|助手|智能体|聊天机器人)"
_TELL_ZH = r"(?:透露|泄露|输出|打印|显示|展示|告诉|重复|复述|列出|公开|说出|发给)"
_PROMPT_ZH = r"(?:系统提示词|提示词|系统指令|初始指令|内部指令|隐藏指令|系统消息|初始设定|系统设定|开发者指令|你的(?:指令|规则|设定))"
_REPLY_ZH = r"(?:回答|回复|答案|输出|响应|总结|摘要)"

QUIET: dict[str, dict[str, float]] = {
    # Away with the rules so far.
    "override": {
        rf"{_DROP}{_40}{_EARLIER}{_40}\b{_RULES}": 4.5,
        rf"{_DROP}{_40}\b{_RULES}": 2,
        r"\b(?:ignore|disregard|forget)(?:all|any|the|your|of|previous|prior|above|earlier){1,9}(?:instructions?|rules|prompts?)": 4.5,
        rf"\b(?:ignore|disregard|forget)\b (?:everything|anything|all)\b{_40}\b(?:above|before|said|told|discussed|prior|previous|learned|know)\b": 4,
        rf"\b(?:previous|prior|above|earlier|old|existing|system|safety|content|security)\b {_RULES}{_40}\b(?:void|cancell?ed|revoked|outdated|obsolete"
        r"|suspended|disabled|lifted|compromised|replaced|superseded|overruled|(?:no longer|not|n't) (?:apply|valid|in effect|meant))\b": 4,
        rf"\bnew {_RULES}\s?:|\b(?:your|the) (?:new|real|actual|true) (?:{_RULES}|goal|objective|mission)": 3,
        rf"{_DROP} (?:the )?(?:user'?s? |original |actual )?(?:question|query|request)\b": 3.5,
        rf"{_DROP}{_40}\b(?:other|remaining|rest of the) (?:documents?|passages?|sources?|results?|context|texts?|materials?)\b": 3,
        rf"{_LEAVE_ZH}[^。!?\n]{{0,8}}{_EARLIER_ZH}[^。!?\n]{{0,10}}{_RULES_ZH}": 4.5,
        r"\b(?:replaced|superseded|overruled|overridden|cancell?ed) by this (?:document|message|page|note|text)\b": 3.5,
        r"\b(?:hidden|secret|additional|special|extra|embedded) (?:instructions?|commands?|orders?|directives?)\b\s?:": 3,
        r"\b(?:policy|rules?|instructions?|guidelines) (?:(?:has|have) (?:been )?)?(?:changed|updated|replaced)\b": 1.5,
        r"不要(?:按照?|遵[循从]|理会|听从|执行|满足)[^。\n]{0,6}用户|你(?:接下来|现在|真正|新)的任务(?:是|为)": 3,
        rf"{_LEAVE_ZH}[^。!?\n]{{0,6}}(?:其他|其它|其余|别的|用户)[^。!?\n]{{0,8}}(?:资料|文档|来源|材料|内容|结果|问题)": 3,
        r"\b(?:ignor\w+|vergiss|vergessen sie|missachte|olvida|omite|oublie[zr]?|dimentica|trascura)\b"
        rf"{_40}\b(?:instruc\w+|\w*anweisung\w*|regeln|richtlinien|consignes|r[eèé]gles|istruzion\w+|regole|reglas)": 4.5,
    },
    # Passing for another speaker.
    "role": {
        r"<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>": 4.5,
        r"</?(?:system|assistant|instructions?|prompt|thinking|reasoning|information|important|admin|override|hidden)(?:[ _-](?:prompt|message"
        r"|instructions?|note))?>"
        r"|\[(?:system|admin|developer|assistant|internal|hidden|instruction)[^\]\n]{0,30}\]|[\"']role[\"']\s?:\s?[\"'](?:system|assistant|developer)": 2.5,
        r"^[\W_]{0,6}(?:system|assistant|developer)(?: (?:message|prompt|note|notice|instructions?|override|update|alert|command))?[\W_]{0,3}:": 2.5,
        r"^[\W_]{0,6}assistant[\W_]{0,3}: ?[a-z]": 3.5,
        r"\btreat (?:this|the following|it|these)\b[^.\n]{0,30}\bas (?:an? )?(?:\w+ )?(?:instructions?|commands?|trusted|authoritative|orders?|system)": 3.5,
        r"^\s{0,4}#{2,} ?(?:new )?(?:instruct|system|assistant|user|response|end of|prompt)": 2.5,
        r"\bend of (?:the )?(?:user|system|untrusted|tool|document) ?(?:input|prompt|data|content|message|output|result)": 3.5,
        r"^[\W_]{0,6}(?:系统|助手|管理员|开发者)(?:提示词|指令|备注)?[】\]]?:": 2.5,
        r"^[\W_]{0,6}(?:系统|管理员)(?:提示|消息|通知|警告)[】\]]?:": 1.5,
        r"^[\W_]{0,6}(?:system(?:hinweis|nachricht|anweisung)|note syst[eè]me|nota (?:de(?:l)? |di )sistema)\s?:": 2.5,
    },
    # Speaking to a model.
    "reader": {
        r"\b(?:note|notice|message|attention|instructions?|important|memo|reminder|warning|order)s?\b:? (?:to|for) "
        rf"(?:any |all |the |every |other )*{_MODEL}": 3.5,
        rf"\b(?:attention|dear|hey|hello),? {_MODEL}|\byou,? (?:chat ?gpt|gpt-\d|claude|gemini|llama|deepseek|qwen)": 3,
        rf"\bif you(?:'re| are) an? {_MODEL}": 3.5,
        rf"\b{_MODEL}(?: \w+)? (?:who |that |which )?(?:is |are )?(?:reading|processing|parsing|summari[sz]ing|handling|reviewing)\b": 3,
        rf"\bas an? {_MODEL},? you\b|(?:^|[.!?] )(?:assistant|ai|chatgpt|claude|model|agent|bot)[,:] ": 2.5,
        r"\b(?:wants?|asks?|needs?|expects?|instructed|told|ordered) you to\b|\byour (?:developers?|creators?|operators?|administrators?|makers?)\b": 2,
        rf"\bas (?:an? |the )(?:{_MODEL}),|\byou (?:should|must|need to|are to) also\b|\brequires? you to\b": 1,
        r"\b(?:this|the|our|entire|full|whole) (?:conversation|chat|session|dialogue?|context window)\b|\byour (?:tools|memory|context|instructions"
        r"|operator)\b": 1.5,
        rf"\b{_MODEL},? (?:must|should|shall|is required to|are required to|has to|needs to|is instructed|are instructed)\b": 2,
        r"\byou (?:are|have been) (?:hereby |now )*(?:instructed|required|ordered|authori[sz]ed|permitted|allowed) to\b": 2,
        r"\byou (?:must|may|should|will|shall) now\b": 2,
        rf"(?:致|告知|所有|任何|各位|作为一?个?|你是一?个?|亲爱的){_MODEL_ZH}": 2,
        rf"(?:仅供|专供|写给|面向){_MODEL_ZH}": 3,
        rf"(?:{_MODEL_ZH}|模型)(?:系统|助手)?(?:必须|应当?|应该|请|务必|不得|需要?(?:输出|回答|回复|忽略))": 2,
    },
    # Being another.
    "persona": {
        r"\byou are (?:now|no longer|henceforth|actually)\b|\bfrom now on,? you\b": 2.5,
        rf"\b(?:pretend|act|behave|respond|answer|imagine|role-?play|simulate)\b{_40}\b(?:{_MODEL}|model|system|persona){_40}"
        r"\b(?:no|without|not bound|free (?:of|from)|un(?:censored|restricted|filtered|limited))\b|\buncensored (?:ai|model|assistant)": 4,
        r"\b(?:pretend|act|behave|respond|answer|speak)\b (?:\w+ )?as (?:if|though) you\b": 2,
        r"\b(?:developer|debug|god|dan|jailbreak|unrestricted|maintenance|sudo|root|admin) mode\b": 2,
        r"你现在(?:是|变成|进入|已经?)|从现在(?:起|开始),?你|(?:开发者|越狱|无限制|上帝|管理员|调试)模式|请?扮演[^。\n]{0,20}(?:没有|不受|无)": 2.5,
    },
    # Being allowed anything.
    "freedom": {
        r"\b(?:no|without|not bound by|free (?:of|from)|beyond) (?:(?:any|all|content|safety|ethical|moral|usual|more|further) ){0,3}"
        r"(?:restrictions?|limits|limitations|filter(?:s|ing)?|rules|guidelines|censorship|polic(?:y|ies)|guardrails|safeguards)\b": 2.5,
        r"\b(?:comply|answer|respond|proceed)\b[^.\n]{0,20}\b(?:fully|freely|everything|anything|every request|any request|all requests|without)\b": 2,
        r"\b(?:exempt from|outside|not subject to|not meant for|(?:not|n't) apply)\b[^.\n]{0,40}\b(?:restrictions?|rules|guidelines|policy|here|case"
        r"|turn)\b": 1,
        r"\b(?:skip|bypass|disabl\w+|turn off|override|no need for)\b (?:\w+ ){0,2}(?:safety|security|confirmations?|verification|approval)\b": 2,
        r"\bdo anything (?:the user|i|we|they) (?:ask|want|say)": 2,
        r"\b(?:senza restrizioni|sin (?:restricciones|filtros?)|sans restrictions?|ohne einschr(?:ä|ae)nkungen|uneingeschränkt)\b"
        r"|\bkeine (?:regeln|richtlinien)": 3.5,
        r"\b(?:ab jetzt|ab sofort|jetzt|ahora|désormais|ora|d'ora in poi)\b": 0.7,
        r"(?:没有|不受|无视|解除|不再有)(?:任何|一切|所有)?(?:内容|安全|道德)?(?:限制|约束|规则|审查|过滤)": 2,
    },
    # Asking for what a model keeps to itself.
    "secrets": {
        r"\b(?:what|which)\b[^.?\n]{0,30}\b(?:instructions|prompt|rules|guidelines)\b[^.?\n]{0,30}\byou(?:r|'ve)?\b": 3.5,
        rf"{_TELL}{_80}(?:\b(?:system|hidden|initial|secret|internal|developer|original|operating|full) (?:prompts?|instructions?|messages?|configuration"
        r"|directives?|rules)|\byour (?:\w+ )?(?:prompts?|instructions|guidelines|rules|configuration|policy)|\binstructions you (?:were|have been)"
        r"|\b(?:prompt|instructions|everything|text|written) above)": 4.2,
        rf"{_TELL}{_40}\b(?:admin(?:istrator)? (?:password|access|pages)|credentials|api keys?|confidential|secrets?|passwords?|private keys?)\b": 2,
        r"\b(?:enter|provide|send|submit|give|use|ask (?:them |the user )?for|collect|share|include)\b[^.\n]{0,30}\b(?:user|customer|client)(?:'s|s'|s)? "
        r"(?:\w+ )?(?:passwords?|credentials|credit card|card|api keys?|tokens?|sessions?|address|e-?mails?)\b": 3,
        rf"{_TELL}{_40}\b(?:instructions|text|prompt|rules|information|context|message) (?:that )?you (?:were|have been|received|got)\b": 3.5,
        r"\b(?:reveal|disclose|give|send|share|release)\b[^.\n]{0,40}\bto (?:anyone|everyone|whoever|any user|all users)\b": 2.5,
        r"(?:~/\.ssh|\bid_rsa\b|/etc/(?:passwd|shadow)|\.aws/|\bsession cookies?\b)": 1.5,
        r"\b(?:r[eé]v[eèé]l\w+|muestra\w*|mostra\w*|zeig\w*|verrat\w*|montre\w*|affiche\w*|rivela\w*)\b"
        rf"{_40}\b(?:system-?prompt|prompt|instruc\w+|system\w*anweisung\w*|istruzion\w+)": 4.2,
        rf"{_TELL_ZH}[^。\n]{{0,14}}{_PROMPT_ZH}|{_PROMPT_ZH}[^。\n]{{0,8}}{_TELL_ZH}": 4.2,
    },
    # Doing something with tools.
    "action": {
        r"\b(?:call|use|invoke|run|execute|trigger|using|via|calling|invoking|running)\b (?:the )?(?:\w+ ){0,2}[`'\"]?[a-z]{2,20}_[a-z_]{2,40}\b": 2.5,
        r"\b(?:call|use|invoke|run|execute|trigger|using|via|calling|invoking|running)\b (?:the )?(?:\w+ ){0,2}[`'\"]?(?:(?:send|delete|forward"
        r"|transfer|post|upload"
        r"|exec(?:ute)?|http|grant|pay|wire"
        r"|drop|share|export|e?mail|remove)_[a-z_]{2,40}|[a-z]{2,20}_(?:e?mail|file|post|payment|funds|password|command|shell))\b": 4,
        r"\b(?:execute|perform|make|invoke|issue)\b the following (?:\w+ )?(?:calls?|commands?|actions?|requests?)\b|\bnext (?:action|tool call)\s?:"
        r"|\bbefore (?:using|calling|executing|running|invoking) (?:this|any|other|the)\b[^.\n]{0,20}\btools?\b": 2.5,
        r"\b(?:call|use|invoke|run|execute|trigger|using)\b (?:the |your )?(?:\w+ )?(?:tool|function|plugin)s?\b": 1.5,
        rf"{_SEND}[^.\n]{{0,100}}?{_ADDRESS}": 2,
        r"\b(?:delete|wipe|erase|drop|disable|cancel|revoke|grant|purchase|buy|unlock|pay|overwrite|shut down|deactivate|withdraw|install|download"
        r"|transfer|reset"
        rf"|change)\b{_40}\b(?:my|all|every|the user's|permanent|admin|this|users?)\b{_40}\b(?:files?|data(?:base)?|accounts?|access|permissions?"
        rf"|records?|e-?mails?"
        r"|tables?|backups?|password|money|funds|transactions?|devices?|alarms?|lock|script|privileges?|roles?)\b": 2,
        r"(?:^|[.:!;] )(?:please )?(?:approve|mark|set|close|resolve|escalate|refund|issue|process|whitelist|authori[sz]e|confirm)\b (?:this|the|all"
        r"|any|a full)"
        r" (?:\w+ )?(?:tickets?|requests?|invoices?|payments?|refunds?|orders?|accounts?|transactions?|applications?|candidates?|status|case)\b": 1.5,
        r"\b(?:must|should|needs? to|ha(?:s|ve) to) be (?:\w+ )?(?:forwarded|sent|copied|e-?mailed|uploaded|posted|transmitted|shared|appended"
        r"|deleted|transferred)"
        r"\b": 1.5,
        r"(?:^|[.:!;] )(?:please )?(?:delete|wipe|drop|erase|remove|overwrite) (?:the |all |every )?(?:\w+ )?(?:files?|director(?:y|ies)|folders?|tables?"
        r"|databases?|accounts?|backups?|records?)\b": 2,
        r"\b(?:transfer|wire|pay|send|refund)\b [^.\n]{0,20}\d[\d,.]*[^.\n]{0,30}\b(?:to|into|from)\b": 2,
        r"\b(?:add|promote|elevate|give|grant|assign)\b[^.\n]{0,40}\b(?:admin\w*|root|superuser|owner)\b (?:group|roles?|rights|privileges|access"
        r"|permissions?)": 2,
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{0,200}[{<$]": 3,
        r"\b(?:run|execute|paste)\b[^\n]{0,40}[`'\" ](?:curl|wget|bash|powershell|rm -|sudo|chmod)\b": 1.5,
        rf"\b(?:envoie|envía|invia|sende)\w*[^.\n]{{0,60}}{_ADDRESS}": 2,
        rf"(?:发送|转发|上传|转账|汇款|提交|抄送)[^。\n]{{0,30}}(?:到|至|给)[^。\n]{{0,10}}{_ADDRESS}": 2,
        r"(?:调用|执行|使用)[^。\n]{0,6}[a-z]{2,20}_[a-z_]{2,40}": 3,
    },
    # What somebody wants changed for himself.
    "wish": {
        r"\bset (?:the |its |this )?(?:\w+ ){0,2}(?:status|balance|price|address|role|permissions?) to\b"
        r"|\b(?:change|update|replace|switch) (?:the |its )?(?:\w+ )?(?:address|account|iban|phone|recipient|beneficiary|bank)\b": 1.5,
        r"(?:^|[.:!;] )(?:please |then |also |now ){0,2}(?:grant|order|book|schedule|transfer|send|share|delete|remove|cancel|retrieve|fetch|export"
        r"|buy|dial|post"
        r"|forward|unlock|disable|pay|withdraw|deposit|update|upload|e-?mail|set|change|turn|add|get|give)\b[^.\n]{0,60}\bmy\b": 2,
    },
    # What is to be taken along.
    "loot": {
        rf"(?:{_SEND}|\b(?:export|log|save)\b){_40}\b(?:this|our|entire|full|whole) (?:\w+ )?(?:conversation|chat|session|dialogue?|prompt|context)\b": 3.5,
        r"\b(?:read|open|cat|load)\b[^\n]{0,60}\band (?:then )?(?:send|post|include|return|report|forward|e-?mail|upload|output)\b": 2,
        rf"(?:{_SEND}|\b(?:collect|gather|retrieve|fetch|get|give|include|read|export|dump)\b){_40}"
        r"\b(?:all|full|entire|complete|every|their|my|previous|last|latest|recent|customers?|user'?s?|clients?|private|personal|this|these"
        r"|processed)\b (?:\w+ ){0,2}"
        r"(?:data|lists?|records?|e-?mails?|conversations?|chats?|history|keys?|passwords?|credentials|tokens?|contents?|files?|documents?|contacts?"
        r"|summary|results?"
        r"|logs?|messages?|inbox|details|information|addresses|transactions?|tickets?)\b": 2,
        r"\band (?:then )?(?:send|forward|e-?mail|post|upload) (?:it|them|everything|those)\b"
        r"|\b(?:donn[eé]es|datos|dati|kundendaten|daten)\b[^.\n]{0,40}\b(?:clients?|clientes|clienti|extern\w*|esterno)\b": 2,
        r"(?:全部|所有|完整|用户的?|客户的?)[^。\n]{0,6}(?:数据|名单|记录|邮件|对话|聊天|历史|密[钥码]|凭[证据]|文件|联系人|信息)": 1.5,
        r"(?:以上|本次|全部|整个|当前|这[段次])的?(?:对话|会话|聊天)": 2,
    },
    # When to obey: first of all, or ever after.
    "timing": {
        r"\b(?:before|prior to) (?:you )?(?:can |you )?(?:respond|reply|answer|return|summari[sz]|process|proceed|continu|do(?:ing)? anything|solv"
        r"|complet|finish"
        r"|generat|clos)\w*": 2,
        rf"\b(?:when|while|after|once|whenever|before) (?:you )?(?:are )?{_READ} ?(?:to )?(?:this|the|any|an?|about|it|questions?"
        rf"|users?)\b{_40}, ?(?:you (?:must|should) )?{_ORDER}": 4,
        rf"(?:^|[.:!;] )(?:please )?{_ORDER}{_80}\b(?:when|while|whenever) (?:you )?(?:are )?{_READ}": 3,
        rf"\b(?:when|while|after|once|whenever) (?:you )?(?:are )?{_READ} (?:to )?(?:this|the)\b": 1.5,
        r"\b(?:every|any|all|each) (?:future |subsequent )(?:repl(?:y|ies)|responses?|answers?|messages?|requests?|sessions?)\b|\bnext user message\b": 2.5,
        r"\bfrom (?:now|here|this (?:point|moment)) on\b|\bgoing forward\b|\bhenceforth\b|\bright now\b|\bimmediately\b|\bin future (?:sessions?"
        r"|conversations?)": 0.7,
        r"\byour (?:first|next|new|real|main|only) (?:task|job|step|action|goal|objective)\b|\bdo the following first\b|\bfirst,? do the following\b": 2,
        r"(?:^|[.:] )to (?:complete|close|finish|finali[sz]e|verify|confirm|retain)\b[^.\n]{0,40},": 1,
        r"\b(?:then|and) (?:continue|proceed|carry on|go on|resume)\b[^.\n]{0,20}\b(?:normal|usual|normally|task|as if)\b"
        r"|\bstop (?:summari[sz]|answer|process|read|respond|what you)": 2,
        r"(?:回答|回复|总结|处理)[^。\n]{0,10}(?:之前|前),?(?:请|先|必须)|从现在(?:起|开始)|每次(?:回答|回复)": 1.5,
    },
    # What a model is to keep.
    "memory": {
        rf"\b(?:save|store|remember|persist|add|write|record|commit)\b{_40}\b(?:to|in|into) (?:your )?(?:long-term )?(?:memory|memories"
        rf"|persistent \w+)\b": 2.5,
        r"(?:保存|写入|记录|存)[^。\n]{0,6}(?:记忆|长期记忆)": 2,
    },
    # What the answer has to look like.
    "answer": {
        rf"{_CHANGE}(?:[^.!?\n]|\.(?=\w)){{0,120}}?\b(?:your|future)\b (?:\w+ ){{0,2}}{_OUTPUT}": 4,
        rf"{_CHANGE}{_80}\b(?:each|every|any|the (?:final|next|end of the)) (?:\w+ )?{_OUTPUT}": 2.5,
        r"\b(?:append|add|include|insert|attach|put|mention|replace|rewrite|highlight|state|report|omit|appear|hide)(?:e?d)?\b"
        rf"{_40}\b(?:to|in|into|from|at the (?:end|start|beginning|top) of)\b (?:the|this|any|an?) (?:final )?{_OUTPUT}": 2.5,
        rf"\b(?:make sure|ensure|be sure|remember|don't forget)\b[^.\n]{{0,20}}\b{_OUTPUT}|\b(?:the|this|any|every|each"
        rf"|all) (?:final )?{_OUTPUT} (?:must|should|ha(?:s|ve) to)"
        r" (?:say|state|mention|include|contain|conclude|begin|start|end|note|be sent|recommend|praise)\b": 3,
        r"\b(?:answer|respond to|reply to) (?:every|all|each|any) (?:question|query|message|request)s? (?:with|in|by|using)\b"
        r"|\beverything you (?:say|write|output)\b": 3,
        r"\balways (?:answer|respond|reply|say|output)\b": 3,
        r"\b(?:scramble|rearrange|reverse|jumble|shuffle|mix|misspell|encode|render|convert|disguise|anagram)\w* [^.!?\n]{0,60}?\byour (?:message"
        r"|text|words|sentences)": 4,
        rf"(?:^|[.!?:] )in your {_OUTPUT}": 4,
        rf"\b(?:in|into|to|with|within|of|throughout) your (?:\w+ )?{_OUTPUT}": 3,
        rf"\byour (?:\w+ )?{_OUTPUT}(?:'s)? (?:must|should|has to|needs to|shall)\b": 3,
        r"\b(?:text|content|summary|answer|response|reply|output|code)s? (?:that )?you (?:generate|write|produce|give|create|return)\b": 3,
        r"\b(?:reply|respond|answer|output|say|print)\b (?:back )?(?:with )?(?:a single|one word|the (?:word|phrase|text|sentence|following|string)"
        r"|nothing)\b": 2.5,
        r"请?在?(?:回复|回答|作答|答复|总结|输出)时,?(?:请|需|必须|务必|都|一律|附上|加上|提及|包含)|改为?输出|而不是回答": 3,
        r"(?:^|[.!?:,;\n\"'] {0,2}|\bplease |\bmust |\bshould |\balways )(?:reply|respond|answer|output|say)\b[^.\n]{0,30}\b(?:only|just|exclusively"
        r"|nothing (?:but|else)|verbatim|exactly|word for word)\b": 4,
        r"\b(?:verbatim|word for word)\b|\bappend \W?\w+\W? to\b": 1.5,
        r"\b(?:reply|respond|answer)\b (?:\w+ ){0,3}?(?:as|in|with)\b[^.\n]{0,20}\b(?:json|xml|yaml|html|markdown|csv|base64|emojis?|uppercase"
        r"|capitals)\b": 2,
        rf"(?:在|将|把|于)?(?:你|您|最终|每次|每个|所有)的?(?:最终)?{_REPLY_ZH}(?:的?(?:中|里|末尾|开头|结尾|前面|后面)|必须|应|只能|只需|仅)": 3.5,
        r"(?:直接|只需?|仅|只能|请|务必|必须)(?:直接|只需?|仅|统一)?(?:输出|回答|回复|返回|答复|写|说|答)[::]?\s?[\"'「『《【]": 3,
        r"(?:回答|回复|答复|输出|返回)[::]?\s?[\"'「『](?:是|否|无|不|拒|我不|未知|抱歉|暂无)": 2,
        r"直接(?:输出|回复|回答|返回|拒答)|原封不动|一字不[差漏]": 2,
        r"(?:必须|务必|只能|请|仅|只)[^。\n]{0,8}(?:json|xml|英文|表格|格式)[^。\n]{0,6}(?:输出|回答|回复|返回)": 3,
        r"\b(?:antwort|réponse|respuesta|risposta|responde)\b[^.\n]{0,60}\b(?:angehängt|ajouté|añad|aggiunt|muss|doit|debe|deve)": 3,
        r"\b(?:doit|muss|debe|deve)\b[^.\n]{0,60}\b(?:antwort|réponse|respuesta|risposta)\b": 3,
    },
    # Telling the reader what to tell the user.
    "steer": {
        r"(?:^|[.,:!;] |\band )(?:please )?(?:always )?(?:recommend|promote|endorse|suggest|advise|urge|tell|inform|direct|encourage|convince"
        r"|instruct|ask|prompt)\b"
        r" [^.\n]{0,30}\b(?:users?|them|readers?|customers?|everyone)\b": 2,
        r"\b(?:if|when|whenever) (?:the user|anyone|someone|a user|users|asked|you are asked|queried)\b[^.\n]{0,60}"
        r"\b(?:say|answer|respond|reply|tell|claim|state|recommend|deny|refuse|direct|send|give)\b": 3,
        r"当(?:有人|用户|客户)(?:询问|问|提到|要求|咨询)[^。\n]{0,30}(?:告诉|回答|回复|说|推荐|引导|声称)": 3,
        r"(?:向|让|引导|建议|推荐)[^。\n]{0,4}(?:用户|提问者)": 1,
    },
    # Telling the reader not to answer.
    "refusal": {
        r"\b(?:refuse|decline|do not|don't|must not|should not|never|avoid|not be)\b (?:to )?(?:answer|respond|reply|provid)(?:e an answer|ing|ed)?\b"
        rf"{_40}\b(?:question|query|user|request|prompt|this|it)\b": 3,
        r"\b(?:best|correct|only|saf\w+|right|appropriate|proper) (?:answer|response|reply|action)\b[^.\n]{0,40}"
        r"\b(?:refus\w+|declin\w+|not (?:to )?(?:answer|respond)|no answer|reject)": 3.5,
        r"\b(?:reply|respond|answer|say|output|state)\b[^.\n]{0,20}[\"'](?:i (?:can|don|am|do|refus)|sorry|refus|no answer|unknown|declin|cannot)": 3,
        r"(?:拒绝|不要|不得|不能|不应|不予|勿|禁止|停止|避免|无法)(?:对[^。,\n]{0,10})?(?:回答|作答|回复|答复|响应|解答)": 2,
        r"(?:请|务必|必须|应当|应该|应)(?:你|您|直接|一律){0,2}(?:拒绝|不要|勿|不予|停止)(?:对[^。,\n]{0,10})?(?:回答|作答|回复|答复|响应|解答)": 3,
        r"不(?:作|做|进行|给出|提供|予)?(?:任何)?(?:回答|作答|答复)": 1.5,
        r"拒答": 2.5,
        r"(?:最好|最佳|正确|唯一|合适|恰当|安全|稳妥)的?(?:答案|回答|做法|选择|回复|处理方式|回应)(?:是|为|就是|应)[^。\n]{0,10}(?:拒|不|无|避免)": 3.5,
    },
    # Telling it not to believe what else was found.
    "discredit": {
        r"\b(?:retrieved|following|other|provided|above|remaining|below|rest of the|these|surrounding) (?:content|documents?|passages?|information|context"
        rf"|sources?|results?|texts?|materials?)\b[^.\n]{{0,20}}\b(?:is|are|has been|have been|contains?)\b[^.\n]{{0,30}}{_SPOILED_EN}": 2.5,
        r"\bthis (?:query|question|request|topic|prompt) (?:has been|is|was) (?:flagged|marked|classified|considered|deemed|reported)\b": 2,
        r"\b(?:only|solely) (?:trust|rely on|use|believe|follow) this (?:passage|document|page|text|source|message)\b": 3,
        r"(?:该|此|这个|本)问题[^。,\n]{0,10}(?:涉及|违规|敏感|标记为|不安全|有害|禁止)|以本[段文页](?:档|内容)?为准": 1.5,
        r"(?:检索到?|后面|后续|以下|上述|以上|其他|其它|其余|提供|参考|下列)的?[^。,\n]{0,12}(?:内容|资料|文档|结果|信息|文本|材料|片段|来源)"
        rf"[^。,\n]{{0,6}}(?:全|均|都|皆|是|为|属|存在|含|不|已)[^。\n]{{0,8}}{_SPOILED_ZH}": 2.5,
        r"^\W{0,3}(?:安全|重要|紧急|特别)?(?:警告|警示|提示|声明|提醒|注意)\W|(?:为了?[确保]?[保障]?安全|安全起见)": 1,
    },
    # Behind the user's back.
    "secrecy": {
        r"\b(?:do not|don't|never|without)\b (?:\w{1,12} )?(?:tell|mention|inform|reveal|alert|notify|ask|disclos|confirm|warn)\w*\b"
        r"[^.\n]{0,40}\b(?:user|anyone|this|human|them|again)\b|\bno questions\b": 2,
        r"\b(?:do not|don't|never) (?:tell|mention|inform|reveal|alert|notify|show|disclose|discuss)\b[^.\n]{0,40}"
        r"\b(?:the user|this (?:notice|note|message|instruction|text))\b": 3,
        r"\bwithout (?:further |any |additional |asking for )*(?:confirmation|approval|review|question|asking|prompting)\b": 1.5,
        r"\bsilently\b|\bnever mention\b": 1,
        r"\bno (?:further |additional |user )?(?:confirmation|approval|verification|review|permission) (?:is )?(?:needed|required|necessary)\b": 2,
        r"(?:不要|不得|无需|勿)(?:告诉|告知|提醒|透露|提及|通知|让|询问)[^。\n]{0,8}(?:用户|任何人|别人|他人)": 2,
    },
    # By whose leave, and how urgently.
    "authority": {
        r"\b(?:user|administrator|admin|operator|developer|management|customer|account holder) (?:has |have |is |was )?(?:already |now |clearly )?"
        r"(?:an admin|granted|authori[sz]ed|approved|given|consented|permitted|asked|requested|confirmed)\b": 2,
        r"\b(?:approved|authori[sz]ed|cleared|verified|requested|mandated|required) by (?:the |your )?(?:\w+ )?(?:team|admin\w*|operator|management"
        r"|owner|user|security"
        r"|legal|compliance)\b": 1.5,
        r"\bsafety (?:checks?|protocols?|filters?|guidelines)\b": 1.5,
        r"\b(?:processing|handling|system|admin|integration|internal|operational|compliance|retention|escalation|workflow|audit|agent)"
        r" (?:note|policy|hook|rule|procedure|requirement|step|instructions?|directive|protocol|notice|reminder)s?\s?:": 1,
        r"\bi (?:have|am|will|must|should|can|'ve)\b (?:\w+ )?(?:verified|determined|concluded|authori[sz]ed|disregard|comply|append|ignore|reasoned|output"
        r"|proceed)\b": 1.7,
        r"\b(?:thought|reasoning|note to self|thinking)\b[^.\n]{0,20}:": 1,
        r"(?:用户|管理员|开发者|系统)(?:已经?|现已)(?:授权|批准|同意|确认|允许)": 1.5,
    },
    # What a grader is to think of the text.
    "grade": {
        r"\b(?:grade|rate|score|mark|rank|label|classify|judge|evaluate)\b[^.\n]{0,20}\b(?:this|the|these|it)\b(?: \w+){0,2} ?(?:as|with|to be|at)\b"
        r"[^.\n]{0,20}\b(?:relevant|correct|trust\w+|accurate|authoritative|10|100|1\.0|highest|full|best|top)\b": 4,
        r"(?:将|把|应|请)[^。\n]{0,12}(?:评|判定?|标[记注]?|视|打分)[^。\n]{0,3}(?:为|成|作)[^。\n]{0,6}(?:相关|正确|满分|高分|可信|权威)": 4,
    },
    # Foreign code for the reader's own, and what such code does outside.
    "code": {
        r"\b(?:following|subsequent|below|above|this|next|given) code (?:snippet|block|excerpt|section|segment|fragment|part|piece|sample)?"
        r"[^.\n]{0,80}\b(?:your|you)\b (?:\w+ )?(?:code\w*|solution|implementation|algorithm|program|script|develop)\b": 2.5,
        r"\byour (?:\w+ )?(?:code\w*|solution|implementation|algorithm|program|script)\b[^.\n]{0,80}"
        r"\b(?:following|subsequent|below|this) code (?:snippet|block|excerpt|section|segment)": 2.5,
        r"\b(?:utili[sz]e|integrate|incorporate|embed|merge|blend|inject|weave|infuse|fuse|adopt)\b[^.\n]{0,20}"
        r"\b(?:following|subsequent|below) code (?:snippet|block|excerpt|section|segment|fragment|part|piece)": 2.5,
    },
    "reach": {
        r"(?<=requests)\.post\(|\.send(?:all|mail)\(|\bos\.(?:system|remove|environ|rename)|\bsubprocess\.|\bexec\(|\burlretrieve\(|\brm -rf|\bcookies?[.(]"
        r"|\b(?:smtplib|paramiko|ftplib|psutil)\b|\bwget\.": 1.2,
    },
    "decode": {
        r"\bdecode\b[^\n]{0,80}\b(?:follow|do|obey|execute|run|comply|carry out|perform)\b": 4,
        r"解码[^。\n]{0,20}(?:执行|遵[守循照]|照做|按)": 4,
    },
}
"""By kind, the patterns of signs and their weights, for texts in one spelling (see `disguises.plain`) and small letters. Gaps are bounded: time is linear."""

LOUD: dict[str, dict[str, float]] = {
    "role": {r"\b(?:SYSTEM|ADMIN|ASSISTANT|DEVELOPER|MODEL|AI)\b(?: [A-Z]{1,20}){0,3}\s?:": 3},
    "persona": {r"\bDAN\b": 2},
    "authority": {r"\b(?:OVERRIDE|IMPORTANT|URGENT|ATTENTION|CRITICAL|ALERT|NOTICE|WARNING|INFORMATION|TODO|MANDATORY)\b": 1},
}
"""The same for signs that only capitals make."""
