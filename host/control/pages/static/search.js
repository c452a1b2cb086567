// Searches the documents that were written as files, as a host searches those that it serves. search-index.js, which is
// large, is loaded once there is something to search for. No other machine is asked.
const query = new URLSearchParams(location.search).get("q") || "";
const words = query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 8);
const field = document.querySelector(".find input");
field.form.hidden = false;
field.value = query;
if (words.length > 0) {
  const index = document.createElement("script");
  index.src = "search-index.js";
  index.onload = () => show(find(sections));
  document.head.append(index);
}

// find returns the sections that have all words, those first that have most of them in their headings.
function find(all) {
  const found = [];
  for (const [address, title, heading, text] of all) {
    const inHeading = (title + " " + heading).toLowerCase(), inText = text.toLowerCase();
    if (words.every((w) => inHeading.includes(w) || inText.includes(w))) {
      const rank = words.filter((w) => inHeading.includes(w)).length;
      found.push({ address, name: heading === title ? title : title + " · " + heading, text, rank, at: Math.max(0, inText.indexOf(words[0])) });
    }
  }
  return found.sort((a, b) => b.rank - a.rank).slice(0, 40);
}

function show(found) {
  const main = document.querySelector("main");
  main.replaceChildren(element("h1", "Search: " + query));
  for (const f of found) {
    const link = element("a", f.name), article = element("article"), heading = element("h2");
    link.href = f.address;
    heading.append(link);
    const begin = Math.max(0, f.at - 80);
    article.append(heading, element("p", (begin > 0 ? "…" : "") + f.text.slice(begin, begin + 240) + (begin + 240 < f.text.length ? "…" : "")));
    main.append(article);
  }
  if (found.length === 0) main.append(element("p", "No page has all of these words."));
}

function element(name, text = "") {
  const e = document.createElement(name);
  e.textContent = text;
  return e;
}
