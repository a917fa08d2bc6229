// What the page says, in English and Chinese.

const WORDS = {
  en: {
    skip: "Skip to the question", tenant: "Company", begin: "New", documents: "Documents", conversation: "Conversation", composer: "Ask a question",
    question: "Ask about your documents…", ask: "Ask", stop: "Stop", close: "Close", signin: "Sign in", signinWhy: "Paste a token of this server, or open the address that it printed when it started.",
    token: "Token", you: "You", answer: "Answer", other: "中文", welcome: "What would you like to know?", welcomeWhy: "Answers come from the documents of {name}, and from the web where those don't say. Every answer shows its sources and how it was checked.",
    addToken: "Another token…", sources: "Sources", how: "How this was answered", source: "Source {n}", stopped: "Stopped.", ready: "The answer is complete.",
    highlight: "What the answer rests on", alsoShown: "Also given to the model", fromWeb: "Web page", fromKnowledge: "Your document", section: "Section", page: "Page", openPage: "Open the page",
    upload: "Add documents", uploadWhy: "Text, Markdown, HTML, PDF, DOCX, CSV; 5 MB at most.", uploading: "Sending {part}%", storing: "Stored chunks: {n}…", uploaded: "{name} is ready (chunks: {n}).", delete: "Delete", remove: "Delete {name}", confirm: "Delete {name}? It can't be undone.", removed: "{name} was deleted.", noDocuments: "No documents yet.", chunks: "chunks: {n}",
    retrieved: "Searched your documents", found: "{n} passages looked at", query: "for “{q}”", graded: "Judged each passage", kept: "Used as [{n}]", dropped: "Left out: {why}", web: "Searched the web", webNone: "Nothing was sent to the web", sent: "Sent: “{q}”", results: "{who}: {n} results in {ms} ms", failedWith: "{who}: {why}", webDropped: "Left out {what}: {why}",
    checks: "Checked the answer", supported: "supported by [{n}]", supportedAny: "supported", contradicted: "contradicted by the sources", not_mentioned: "not in the sources", troubles: "Trouble", trouble: "{step} failed: {reason}", times: "Time", together: "{ms} ms in all; models and searches of the check itself: {calls} model calls, {tokens} tokens, {web} web requests",
    verdict: "Verdict", relevant: "relevant", ambiguous: "ambiguous", incorrect: "incorrect", label_relevant: "answers", label_ambiguous: "may answer", label_incorrect: "does not answer", label_ungraded: "not judged", supportedCount: "{n} of {m} statements supported", nothingToCheck: "No statements to check", notChecked: "Statements were not checked",
    badge_relevant: "From your documents", badge_ambiguous: "Your documents only touch on this", badge_incorrect: "Not in your documents: from the web", badge_none: "No source found", badge_failed: "Your documents could not be searched", badge_skipped: "No look-up needed", badge_open: "No verdict",
    conflict: "Sources contradict each other", probability: "{p}% likely to answer", doubt: "Not supported by the sources",
    "stage:rewriting": "Trying other words", "stage:retrieving": "Searching your documents", "stage:reranking": "Putting in order", "stage:grading": "Judging what was found", "stage:searching the web": "Searching the web", "stage:refining": "Picking the sentences", "stage:assembling": "Handing over to the model", "stage:done": "Writing", "stage:checking": "Checking the answer",
    "stage:reading": "Reading the question", "stage:merging": "Merging", "stage:writing": "Writing and checking",
    "note:no_rewriter": "The question was searched in your own words.", "note:no_web_search": "There is no web search here.", "note:web_off": "The web is switched off for this company.", "note:web_not_needed": "The web was not needed.", "note:cut_to_budget": "Not everything that was found fits.", "note:no_web_query": "Nothing of the question could go to the web.",
    "error:offline": "The server can't be reached. Check that it runs, then try again.", "error:unauthorized": "This token is not known, or the server was started anew. Open the address that it printed.", "error:busy": "The last question is still being answered.", "error:no_thread": "This conversation is gone. Begin a new one.", "error:failed": "That did not work. Try again.",
    "error:too_large": "This file is larger than 5 MB.", "error:malformed": "The question is empty or longer than 4000 characters.", "error:broken": "The answer broke off. Try again.",
  },
  zh: {
    skip: "跳到提问框", tenant: "公司", begin: "新对话", documents: "文档", conversation: "对话", composer: "提问",
    question: "就你的文档提问……", ask: "提问", stop: "停止", close: "关闭", signin: "登录", signinWhy: "粘贴本服务器的令牌，或打开服务器启动时显示的地址。",
    token: "令牌", you: "你", answer: "回答", other: "English", welcome: "想了解什么？", welcomeWhy: "回答来自{name}的文档，文档没有写到的再查网络。每个回答都附有来源和核对过程。",
    addToken: "添加令牌……", sources: "来源", how: "回答的经过", source: "来源 {n}", stopped: "已停止。", ready: "回答完毕。",
    highlight: "回答的依据", alsoShown: "同时提供给模型的内容", fromWeb: "网页", fromKnowledge: "你的文档", section: "章节", page: "页码", openPage: "打开网页",
    upload: "添加文档", uploadWhy: "文本、Markdown、HTML、PDF、DOCX、CSV，最大 5 MB。", uploading: "正在上传 {part}%", storing: "已存入 {n} 段……", uploaded: "{name} 已就绪：{n} 段。", delete: "删除", remove: "删除 {name}", confirm: "要删除 {name} 吗？删除后无法恢复。", removed: "{name} 已删除。", noDocuments: "还没有文档。", chunks: "{n} 段",
    retrieved: "检索你的文档", found: "查看了 {n} 个段落", query: "查询“{q}”", graded: "逐段评判", kept: "采用，编号 [{n}]", dropped: "未采用：{why}", web: "检索网络", webNone: "没有向网络发送任何内容", sent: "发送：“{q}”", results: "{who}：{n} 条结果，{ms} 毫秒", failedWith: "{who}：{why}", webDropped: "未采用 {what}：{why}",
    checks: "核对回答", supported: "有依据 [{n}]", supportedAny: "有依据", contradicted: "与来源矛盾", not_mentioned: "来源中没有", troubles: "故障", trouble: "{step} 失败：{reason}", times: "用时", together: "共 {ms} 毫秒；核对本身用了 {calls} 次模型调用、{tokens} 个词元、{web} 次网络请求",
    verdict: "判定", relevant: "相关", ambiguous: "不确定", incorrect: "不相关", label_relevant: "能回答", label_ambiguous: "也许能回答", label_incorrect: "不能回答", label_ungraded: "未评判", supportedCount: "{m} 句中有 {n} 句有依据", nothingToCheck: "没有需要核对的陈述", notChecked: "陈述未经核对",
    badge_relevant: "来自你的文档", badge_ambiguous: "你的文档只略有涉及", badge_incorrect: "文档中没有，来自网络", badge_none: "没有找到来源", badge_failed: "无法检索你的文档", badge_skipped: "无需检索", badge_open: "没有判定",
    conflict: "来源互相矛盾", probability: "能回答的概率 {p}%", doubt: "来源不支持这句话",
    "stage:rewriting": "换个说法", "stage:retrieving": "检索你的文档", "stage:reranking": "排序", "stage:grading": "评判检索结果", "stage:searching the web": "检索网络", "stage:refining": "挑选句子", "stage:assembling": "交给模型", "stage:done": "撰写", "stage:checking": "核对回答",
    "stage:reading": "读题", "stage:merging": "合并", "stage:writing": "撰写与核对",
    "note:no_rewriter": "按你的原话检索。", "note:no_web_search": "这里没有网络检索。", "note:web_off": "该公司关闭了网络检索。", "note:web_not_needed": "不需要网络。", "note:cut_to_budget": "检索到的内容没有全部放入。", "note:no_web_query": "问题中没有可以发送到网络的内容。",
    "error:offline": "连不上服务器。请确认它在运行，然后重试。", "error:unauthorized": "令牌无效，或服务器已重新启动。请打开它显示的地址。", "error:busy": "上一个问题还在回答中。", "error:no_thread": "这个对话已不存在，请开始新对话。", "error:failed": "没有成功，请重试。", "error:unavailable": "服务暂时不可用，请稍后再试。",
    "error:too_large": "文件超过 5 MB。", "error:malformed": "问题为空，或超过 4000 个字。", "error:unknown_type": "不支持这种文件。", "error:bad_name": "这个文件名不能用，请改名。", "error:empty": "文件是空的。", "error:no_document": "没有这个文档，可能已经删除。", "error:unreadable": "文件无法读取。", "error:broken": "回答中断了，请重试。",
  },
};

let language = "en";

export const LANGUAGES = Object.keys(WORDS);

export function speak(code) {
  language = WORDS[code] ? code : "en";
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  return language;
}

/** The words of a key, with `{name}` filled in; the key's own last part where there are none. */
export function say(key, values = {}) {
  const text = WORDS[language][key] ?? WORDS.en[key] ?? key.split(":").pop();
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

export function has(key) {
  return key in WORDS[language];
}

/** An error as a person understands it: in their own words where the page has some, else in the server's. */
export function tell(error) {
  const key = `error:${error.code ?? "failed"}`;
  return has(key) ? say(key) : error.message || say("error:failed");
}
