"""A text without what is known inside a house only: private addresses, internal host names, names of users in paths.

Public addresses stay: versions of four parts look like them, and those that people ask about, such as public resolvers, are everybody's.
"""

from crag_middleware.stages.clearing import Rule, clear, rule

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_PRIVATE = rf"(?:(?:10\.{_OCTET}|192\.168|172\.(?:1[6-9]|2\d|3[01])|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7]))\.{_OCTET}\.{_OCTET})"
"""Source: RFC 1918, and RFC 6598 for 100.64.0.0/10."""
_BLOCKS = r"(?:10\.0\.0\.0/8|172\.16\.0\.0/12|192\.168\.0\.0/16|100\.64\.0\.0/10)"
"""The same for everybody."""
_VERSION = r"(?:(?<![a-z])(?:v|ver|version|release|build|firmware|driver|sdk|oracle(?: database)?)|版本|固件|升级到)[ :：]{0,2}v?"
_SUFFIX = r"(?:internal|intranet|local|localdomain|corp|lan|home\.arpa)"
_KNOWN_HOSTS = (
    r"(?:(?:host|gateway|kubernetes)\.docker\.internal|host\.containers\.internal|metadata\.google\.internal|(?:kubernetes\.default\.)?svc\.cluster\.local"
    r"|cluster\.local|localhost\.localdomain|(?:raspberrypi|homeassistant)\.local|openwrt\.lan)"
)
"""Names that are the same in every house."""
_FILES = r"(?:rc|env|jail|settings|config|conf|bashrc|zshrc|vimrc|gitconfig|threading)\.local|(?:com|org|net|io|java|javax|jdk|sun|kotlin|androidx?|cn)\."
"""How file names and packages begin that end like internal hosts."""
_NUMBERED_NAME = r"(?=[a-z][a-z0-9]*[\d-])(?!k8s[:/]|\w{2,8}-(?:19|20)\d\d:)[a-z][a-z0-9-]{0,61}[a-z0-9]"
"""A host name without a domain, told by its digit or hyphen; advisories are called `RHSA-2024:1234`."""
_ANYBODY = (
    r"(?:user ?name|users?|you|your[\w-]*|someone|example|public|default|all users|shared|administrator|admin|root|ubuntu|debian|ec2-user|vscode|node|jovyan"
    r"|runner|coder|pi|git|app|site|linuxbrew|hadoop|airflow|%\w+%|\$\w+|\$\{\w+\}|<[^<>\n]{1,30}>|\{\w+\}|\*)(?![\w-])"
)
"""Users that are nobody."""
_USER = r"(?:[\w.@-]+|[^\s/\\:;,'\"<>|()，。；：、“”]+)"
_PLACEHOLDER = r"(?:user|username|root|ubuntu|ec2-user|pi|git)@(?:host|hostname|server|remote|ip|localhost|example\.\w+|github\.com|gitlab\.com)(?![\w.-])"

_RULES: tuple[Rule, ...] = (
    # A path below a home keeps its rest, in the spelling that stands for anybody's.
    rule(
        rf"(?:(?<=file://)|(?<![\w./]))(?:/(?:data\d*|export|nfs|mnt|srv|vol\d*|[a-z]|mnt/[a-z]))?/(?:home|users)/(?!{_ANYBODY}){_USER}",
        instead="~",
    ),
    rule(
        rf"(?:(?<![a-z])[a-z]:(?:\\{{1,2}}|/)|(?<![\w\\])\\{{1,2}})(?:users|documents and settings)(?:\\{{1,2}}|/)(?!{_ANYBODY})"
        rf"(?:[^\\/\n:*?\"<>|]{{1,40}}(?=[\\/])|{_USER})",
        instead="%USERPROFILE%",
    ),
    *(
        rule(pattern)
        for pattern in (
            rf"(?P<name>(?<![\w-])(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)\s(?:[^\n|@]{{0,100}}?\s)?)(?!{_PLACEHOLDER})[\w.-]{{1,64}}@[\w.-]{{1,255}}",
            r"(?<![\w.@-])[\w.-]{1,64}@[a-z][\w.-]{0,63}:[~/][^\s$#]{0,200}[$#](?=\s)",
            rf"(?<![\w.@-])(?!git@)[\w.-]{{1,64}}@{_OCTET}(?:\.{_OCTET}){{3}}(?![\w.])",
            rf"(?P<keep>(?<![\w.]){_BLOCKS}(?!\d)|{_VERSION}{_PRIVATE})|(?<![\w.]){_PRIVATE}(?:/\d{{1,2}}|:\d{{1,5}})?(?![\w]|\.\d)",
            r"(?P<keep>(?<![\w:])(?:f[cd]00::/[78]|fe80::(?:/10|1(?![\w:]))))|(?<![\w:])(?:f[cd][0-9a-f]{2}|fe80):[0-9a-f:]{2,38}(?:%\w{1,16})?(?:/\d{1,3})?(?![\w:])",
            r"(?<![\w-])ip-(?:\d{1,3}-){3}\d{1,3}(?:\.[\w.-]{1,100})?(?![\w-])",
            rf"(?P<keep>(?<![\w.-]){_KNOWN_HOSTS}(?![\w-]))"
            rf"|(?<![\w.-])(?:(?<!/)(?<!\\)|(?<=//)|(?<=\\\\))(?!{_FILES})(?:[a-z0-9_](?:[\w-]{{0,62}})\.){{1,6}}{_SUFFIX}(?::\d{{1,5}})?(?![\w(-]|\.\w)",
            rf"(?<![\w./@:\\-]){_NUMBERED_NAME}:(?!(?:19|20)\d\d(?!\d))[1-9]\d{{3,4}}(?![\w:-]|\.\w)",
            rf"(?<=://){_NUMBERED_NAME}(?::\d{{1,5}})?(?=[/\s]|\Z)",
            r"(?P<name>(?<![\w\\])\\\\)(?!(?:server|localhost|wsl|host|nas|computer)\w{0,8}[\\$.])[a-z][\w.-]{2,62}(?=\\[\w$])",
        )
    ),
)


def without_inside(text: str) -> str:
    """The text without private addresses and internal hosts; `~` and `%USERPROFILE%` stand for homes."""
    return clear(text, _RULES)
