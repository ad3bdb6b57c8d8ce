// Markdown to elements. Text of a model is never parsed as HTML: every piece
// becomes a text node, and links lead to http and https only.
const element = (name, ...children) => {
  const made = document.createElement(name);
  made.append(...children);
  return made;
};

// Code, bold, italic, strike-through, links; the first match wins.
const kInline =
    /(`+)(.+?)\1|\*\*(.+?)\*\*|__(.+?)__|\*([^\s*](?:.*?[^\s*])?)\*|~~(.+?)~~|\[([^\]]+)\]\(([^)\s]+)\)/s;

function inline(text) {
  const nodes = [];
  while (text) {
    const found = kInline.exec(text);
    if (!found) {
      nodes.push(text);
      break;
    }
    if (found.index > 0) nodes.push(text.slice(0, found.index));
    const [whole, , code, bold, bold2, italic, strike, label, target] = found;
    if (code !== undefined) {
      nodes.push(element("code", code));
    } else if (bold ?? bold2) {
      nodes.push(element("strong", ...inline(bold ?? bold2)));
    } else if (italic !== undefined) {
      nodes.push(element("em", ...inline(italic)));
    } else if (strike !== undefined) {
      nodes.push(element("s", ...inline(strike)));
    } else if (/^https?:\/\//i.test(target)) {
      const link = element("a", ...inline(label));
      link.href = target;
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      nodes.push(link);
    } else {
      nodes.push(whole);
    }
    text = text.slice(found.index + whole.length);
  }
  return nodes;
}

const kFence = /^\s*(```+|~~~+)\s*(\S*)/;
const kHeading = /^(#{1,6})\s+(.*?)#*\s*$/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kRule = /^\s*([-*_])(\s*\1){2,}\s*$/;
const kQuote = /^\s*>\s?(.*)$/;
const kRow = /^\s*\|(.*)\|\s*$/;
const kColumns = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;

const cells = (line) => kRow.exec(line)[1].split("|").map((c) => c.trim());

function table(lines) {
  const row = (line, name) =>
      element("tr", ...cells(line).map((c) => element(name, ...inline(c))));
  const body = lines.slice(2).map((line) => row(line, "td"));
  const made = element("div", element("table",
      element("thead", row(lines[0], "th")), element("tbody", ...body)));
  made.className = "scroll";
  return made;
}

// Quotes and lists that lie deeper than this one in another are shown at this
// depth: a line of thousands of ">" would else be as many calls.
const kMostDepth = 20;

// Items of one list; deeper ones become a list of the item before.
function list(items, level = 1) {
  const ordered = /\d/.test(items[0].mark);
  const made = document.createElement(ordered ? "ol" : "ul");
  if (ordered) made.start = parseInt(items[0].mark, 10);
  const depth = items[0].depth;
  for (let i = 0; i < items.length;) {
    const item = element("li", ...inline(items[i].text));
    let end = i + 1;
    while (level < kMostDepth && end < items.length &&
           items[end].depth > depth) {
      ++end;
    }
    if (end > i + 1) item.append(list(items.slice(i + 1, end), level + 1));
    made.append(item);
    i = end;
  }
  return made;
}

// Elements of the whole text; `level`: in so many quotes.
export function markdown(text, level = 0) {
  const isQuote = (line) => level < kMostDepth && kQuote.test(line);
  const lines = text.split("\n");
  const blocks = [];
  // Lines from `at` on while `wanted` takes them.
  const take = (at, wanted) => {
    let end = at;
    while (end < lines.length && wanted(lines[end])) ++end;
    return lines.slice(at, end);
  };
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = kFence.exec(line);
    if (fence) {
      const code = take(at + 1, (each) => !each.trim().startsWith(fence[1]));
      blocks.push(element("pre", element("code", code.join("\n"))));
      at += code.length + 2;
      continue;
    }
    const heading = kHeading.exec(line);
    if (heading) {
      // The page has headings of its own above them.
      blocks.push(element(`h${Math.min(6, heading[1].length + 2)}`,
                          ...inline(heading[2])));
      ++at;
    } else if (!line.trim()) {
      ++at;
    } else if (kRule.test(line)) {
      blocks.push(element("hr"));
      ++at;
    } else if (kRow.test(line) && kColumns.test(lines[at + 1] ?? "")) {
      const rows = take(at, (each) => kRow.test(each));
      blocks.push(table(rows));
      at += rows.length;
    } else if (kItem.test(line)) {
      const rows = take(at, (each) => kItem.test(each) || /^\s+\S/.test(each));
      const items = [];
      for (const row of rows) {
        const found = kItem.exec(row);
        if (found) {
          items.push({depth: found[1].length, mark: found[2], text: found[3]});
        } else {
          items.at(-1).text += ` ${row.trim()}`;
        }
      }
      const least = Math.min(...items.map((item) => item.depth));
      items[0].depth = least;
      blocks.push(list(items));
      at += rows.length;
    } else if (isQuote(line)) {
      const rows = take(at, isQuote);
      const inner = rows.map((each) => kQuote.exec(each)[1]).join("\n");
      blocks.push(element("blockquote", ...markdown(inner, level + 1)));
      at += rows.length;
    } else {
      const rows = take(at, (each) => each.trim() && !kFence.test(each) &&
          !kHeading.test(each) && !kItem.test(each) && !isQuote(each));
      blocks.push(element("p", ...inline(rows.join("\n"))));
      at += Math.max(rows.length, 1);
    }
  }
  return blocks;
}
