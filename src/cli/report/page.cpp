#include "cli/report/page.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "cli/report/base64.hpp"

namespace shunt::cli {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
)";

/// Forbids the page to load anything, and to run anything but `script`, even if names in a report contain markup.
std::string policy(const Script& script) {
  std::string digest;
  for (std::size_t i = 0; i < script.sha256.size(); i += 2)
    digest += static_cast<char>(std::stoi(std::string(script.sha256.substr(i, 2)), nullptr, 16));
  const std::string scripts = digest.empty() ? "" : fmt::format("; script-src 'sha256-{}'", base64(digest));
  return fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:{}\">\n",
      scripts);
}

// In both schemes text has a contrast of at least 4.5:1 to its background, lines and marks 3:1.
constexpr std::string_view kStyle = R"(<style>
:root {
  --page: #f5f5f8; --card: #ffffff; --line: #dfe1e8; --grid: #e8e9ef; --text: #191c24; --quiet: #5a6070;
  --good: #0a6b4f; --good-card: #e2f5ed; --bad: #a3341b; --bad-card: #fdeae4; --mark: #f3effd;
  --s0: #6534c9; --s1: #848b9b; --s2: #0f766e; --s3: #b45309; --s4: #1d6fd1; --s5: #be185d; --s6: #4d7c0f; --s7: #6b5b4d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1016; --card: #171a23; --line: #2c3140; --grid: #252a37; --text: #e9ebf2; --quiet: #a4abbb;
    --good: #6fdcb1; --good-card: #12332a; --bad: #ff9d80; --bad-card: #3d1f18; --mark: #241d3a;
    --s0: #b89bff; --s1: #868ea1; --s2: #45c9b8; --s3: #f0a35c; --s4: #6fb0ff; --s5: #ff86b6; --s6: #a0d35a; --s7: #c6b8a8;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); line-height: 1.5; overflow-wrap: anywhere;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main, footer { max-width: 1180px; margin: 0 auto; padding: 0 clamp(14px, 3vw, 32px); }
header { padding: clamp(24px, 5vw, 56px) 0 20px; }
.kind { margin: 0; color: var(--s0); font-size: .82rem; font-weight: 650; letter-spacing: .06em; text-transform: uppercase; }
h1 { margin: .15em 0 .3em; font-size: clamp(1.7rem, 4.6vw, 2.9rem); line-height: 1.12; letter-spacing: -.02em; text-wrap: balance; }
h2 { margin: 0 0 .25em; font-size: 1.2rem; letter-spacing: -.01em; }
.lead { max-width: 46em; margin: 0; font-size: clamp(1rem, 1.6vw, 1.15rem); }
p { margin: 0 0 .9em; }
sub { line-height: 0; font-size: .72em; }
.quiet, caption, dt { color: var(--quiet); }
section, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 14px; }
section { margin: 0 0 18px; padding: clamp(16px, 2.4vw, 26px); }
section > p { max-width: 56em; }
.tiles, .pair { display: grid; gap: 18px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); }
.tiles { margin-bottom: 18px; }
.pair { gap: clamp(18px, 3vw, 36px); grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.pair > *, .stack > * { min-width: 0; }
.stack { display: grid; gap: 26px; }
.tile { padding: 18px 20px; }
.tile p { margin: 0; font-size: .9rem; }
.tile .figure { margin: .1em 0; font-size: 1.85rem; font-weight: 680; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
.tile .was { color: var(--quiet); font-weight: 450; }
.change { display: inline-block; padding: .05em .6em; border-radius: 99px; font-weight: 620; }
.good { color: var(--good); background: var(--good-card); }
.bad { color: var(--bad); background: var(--bad-card); }
.same { border: 1px solid var(--line); }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--s0); outline-offset: 3px; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; font-variant-numeric: tabular-nums; }
caption { padding-bottom: 8px; text-align: left; font-size: .9rem; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 72px); }
th, td { padding: .5em .75em; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
thead th { color: var(--quiet); font-weight: 560; font-size: .85rem; vertical-align: bottom; white-space: normal; overflow-wrap: normal; min-width: 5.6em; }
thead .group { text-align: center; }
colgroup + colgroup { border-left: 1px solid var(--grid); }
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--card); text-align: left; }
tbody th { font-weight: 560; box-shadow: inset 0 -1px var(--grid); }
tbody tr:last-child > * { border-bottom: 0; }
.marked > * { background: var(--mark) !important; font-weight: 660; }
figure { margin: 0; }
figcaption { margin-bottom: 6px; font-weight: 600; }
figcaption span { display: block; color: var(--quiet); font-size: .88rem; font-weight: 400; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 6px; padding: 0; list-style: none; font-size: .88rem; }
.key { width: 16px; height: 16px; margin-right: 6px; vertical-align: -3px; }
.plot { display: block; width: 100%; height: 290px; padding: 12px 14px 48px 46px; overflow: visible; }
.plot text { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
.plot .grid { stroke: var(--grid); }
.plot .base { stroke: var(--quiet); }
.plot .section { stroke: var(--line); stroke-dasharray: 2 3; }
.plot .limit { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 6 4; }
.plot polyline { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.plot .s0 polyline { stroke-width: 3; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
.over { --c: var(--bad); } .mark { --c: var(--text); }
svg .s0, svg .s1, svg .s2, svg .s3, svg .s4, svg .s5, svg .s6, svg .s7, svg .mark, .legend li { fill: var(--c); stroke: var(--c); }
.plot rect { stroke: none; }
.plot use, .key use { stroke: var(--card); stroke-width: 1.2; paint-order: stroke; }
.heat { display: block; width: 100%; max-width: 620px; aspect-ratio: 1; padding: 24px 4px 4px 24px; overflow: visible; }
.heat image { image-rendering: pixelated; }
.heat text { fill: var(--quiet); font-size: 12px; text-anchor: middle; font-variant-numeric: tabular-nums; }
.heat line { stroke: #fff; stroke-opacity: .16; }
.heat rect { fill: none; stroke: #fff; stroke-width: 1.4; }
.heat .node { stroke: #62e0ff; stroke-width: 2.2; }
.scale { display: grid; grid-template-columns: auto minmax(60px, 240px) auto; justify-content: start; gap: 10px; align-items: center; margin: 14px 0 0; font-size: .88rem; color: var(--quiet); white-space: nowrap; }
.scale span:nth-child(2) { height: 12px; border-radius: 6px; }
.timeline { position: relative; }
.timeline canvas { display: block; width: 100%; cursor: crosshair; touch-action: pan-y; }
.timeline canvas:focus-visible { outline: 2px solid var(--s0); outline-offset: 3px; border-radius: 4px; }
.buttons { display: flex; flex-wrap: wrap; gap: 6px; margin: 0 0 8px; }
button { padding: .25em .8em; font: inherit; font-size: .85rem; color: var(--text); background: var(--page); border: 1px solid var(--line); border-radius: 7px; cursor: pointer; }
button:hover { border-color: var(--s0); }
.tip { position: absolute; z-index: 1; max-width: 22em; margin: 0; padding: 6px 10px; white-space: pre-line; font-size: .82rem; color: var(--text); background: var(--page); border: 1px solid var(--line); border-radius: 7px; pointer-events: none; }
details { margin-top: 16px; }
summary { cursor: pointer; color: var(--quiet); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(max(138px, 18%), 1fr)); gap: 14px 24px; margin: 0; }
dt { font-size: .85rem; }
dd { margin: 0; font-weight: 560; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .93em; }
footer { padding-top: 6px; padding-bottom: 40px; color: var(--quiet); font-size: .85rem; }
@media print { section, .tile { break-inside: avoid; } }
</style>
)";

// Shapes around 0, 0, so that <use> can put them at percentages of a plot.
constexpr std::string_view kMarkers = R"(<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>
<circle id="m0" r="4.6"/>
<path id="m1" d="M-3.4-3.4h6.8v6.8h-6.8z"/>
<path id="m2" d="M0-4.8 4.6 3.6H-4.6z"/>
<path id="m3" d="M0-5 5 0 0 5-5 0z"/>
<path id="m4" d="M-1.6-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z"/>
<path id="m5" d="M0 4.8 4.6-3.6H-4.6z"/>
<path id="m6" d="M-5-2.4H5V2.4H-5z"/>
<path id="m7" d="M-2.4-5H2.4V5H-2.4z"/>
<path id="bar" d="M-6-6h12v12h-12z"/>
<path id="tick" d="M-1.4-15h2.8v30h-2.8z"/>
<path id="dashes" d="M-8-1h6v2h-6zM2-1h6v2h-6z"/>
</defs></svg>
)";

/// A run of adjacent columns with the same heading.
struct ColumnGroup {
  std::string heading;
  std::size_t size = 0;
};

std::vector<ColumnGroup> groups_of(const std::vector<Table::Column>& columns) {
  std::vector<ColumnGroup> groups;
  for (const Table::Column& column : columns) {
    if (groups.empty() || groups.back().heading != column.group) groups.push_back({column.group, 0});
    ++groups.back().size;
  }
  return groups;
}

std::string header_of(const std::vector<Table::Column>& columns) {
  std::string spans, headings, names;
  const std::vector<ColumnGroup> groups = groups_of(columns);
  for (const auto& [heading, size] : groups) {
    spans += fmt::format("<colgroup span=\"{}\"></colgroup>", size);
    headings += heading.empty() ? fmt::format("<td colspan=\"{}\"></td>", size)
                                : fmt::format("<th class=\"group\" scope=\"colgroup\" colspan=\"{}\">{}</th>", size,
                                              prose(heading));
  }
  for (const Table::Column& column : columns) names += fmt::format("<th scope=\"col\">{}</th>", prose(column.name));
  const std::string above = groups.size() > 1 ? fmt::format("<tr>{}</tr>\n", headings) : "";
  return fmt::format("{}\n<thead>{}<tr>{}</tr></thead>\n", spans, above, names);
}

}  // namespace

std::string escape(std::string_view text) {
  std::string html;
  for (const char c : text) {
    if (c == '&')
      html += "&amp;";
    else if (c == '<')
      html += "&lt;";
    else if (c == '>')
      html += "&gt;";
    else if (c == '"')
      html += "&quot;";
    else if (c == '\'')
      html += "&#39;";
    else
      html += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  }
  return html;
}

std::string prose(std::string_view text) {
  constexpr std::string_view kPlain = "C_T", kFormula = "<i>C</i><sub>T</sub>";
  std::string html = escape(text);
  for (std::size_t at = html.find(kPlain); at != std::string::npos; at = html.find(kPlain, at + kFormula.size()))
    html.replace(at, kPlain.size(), kFormula);
  return html;
}

std::string to_html(const Table& table) {
  std::string html = fmt::format("<table><caption><span>{}</span></caption>\n{}<tbody>\n", prose(table.caption),
                                 header_of(table.columns));
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    html += row == table.marked_row ? "<tr class=\"marked\">" : "<tr>";
    for (std::size_t i = 0; i < table.rows[row].size(); ++i)
      html += (i == 0 ? "<th scope=\"row\">" : "<td>") + escape(table.rows[row][i]) + (i == 0 ? "</th>" : "</td>");
    html += "</tr>\n";
  }
  html += "</tbody></table>\n";
  return scrolled(table.caption, html);
}

std::string scrolled(std::string_view what, std::string_view html) {
  return fmt::format("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{}</div>\n", escape(what),
                     html);
}

std::string footer(const std::vector<std::string>& sources) {
  std::vector<std::string> names;
  for (const std::string& source : sources) names.push_back(fmt::format("<code>{}</code>", escape(source)));
  return fmt::format("<footer><p>Made by shunt {} from {}.</p></footer>\n", SHUNT_VERSION, fmt::join(names, ", "));
}

std::string make_page(std::string_view title, std::string_view body, const Script& script) {
  const std::string scripts = script.text.empty() ? "" : fmt::format("<script>{}</script>\n", script.text);
  return fmt::format("{}{}<title>{}</title>\n{}</head>\n<body>\n{}{}{}</body>\n</html>\n", kHead, policy(script),
                     escape(title), kStyle, kMarkers, body, scripts);
}

}  // namespace shunt::cli
