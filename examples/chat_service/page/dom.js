// Makes elements. Strings become text nodes, never markup; addresses lead to http or https or nowhere.

export function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** A link, if the address is one of the web; else its text. */
export function link(address, text = address) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    return el("span", {}, text);
  }
  if (!["http:", "https:"].includes(url.protocol)) return el("span", {}, text);
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, text);
}
