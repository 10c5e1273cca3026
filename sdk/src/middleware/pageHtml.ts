import { encode } from 'uqr'
import { type ShownPurchase, writeBuyCommand, writeMcpConfig } from './howToBuy.ts'
import { whereItRuns } from './ownCommand.ts'
import type { PageFacts } from './pageFacts.ts'
import { escapeHtml, plainText } from './pageText.ts'

/** The page's style. The content security policy contains its hash, so no other style applies. */
export const pageStyle = `
:root{color-scheme:light dark;--text:#1a1d21;--soft:#59616b;--back:#f4f5f7;--card:#fff;--line:#d9dde2;--strong:#0b57d0;--on:#fff}
@media(prefers-color-scheme:dark){:root{--text:#e8eaed;--soft:#a7aeb8;--back:#121417;--card:#1c1f24;--line:#353a42;--strong:#8ab4f8;--on:#10141a}}
*{box-sizing:border-box}
body{margin:0;padding:2rem 1rem;background:var(--back);color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:42rem;margin:0 auto;display:grid;gap:1rem}
main>*{min-width:0}
section,header{background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:1.25rem}
h1{margin:.25rem 0;font-size:2rem;line-height:1.2}
h2{margin:0 0 .5rem;font-size:1.125rem}
p{margin:.5rem 0}
.soft,dt,footer{color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;margin:1rem 0 0}
dd{margin:0;min-width:0}
code,pre{font:.875rem/1.5 ui-monospace,monospace}
pre{margin:.5rem 0;padding:.75rem;background:var(--back);border-radius:.5rem;white-space:pre-wrap}
a{color:var(--strong)}
.pay{display:inline-block;padding:.6rem 1.2rem;border-radius:.5rem;background:var(--strong);color:var(--on);font-weight:600;text-decoration:none}
a:focus-visible,summary:focus-visible{outline:3px solid var(--text);outline-offset:2px}
svg{display:block;width:10rem;height:10rem;margin-top:.75rem;border-radius:.5rem;background:#fff}
.test{display:inline-block;padding:0 .6rem;border:1px solid;border-radius:.5rem}
summary{cursor:pointer}
@media(max-width:30rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.5rem}}
`

/**
 * Maximum length of a URL in the QR code. A longer URL needs so many small squares that a phone's camera can't read the code.
 */
const maxCodeLength = 300

/** Returns the page of a 402: a single document that loads nothing, runs nothing and uses no wallet. */
export function writePage(facts: PageFacts): string {
  const { price, seller, description, host, isTest, isMock, gatewayUrl } = facts
  const by = seller === undefined ? '' : `<bdi>${escapeHtml(plainText(seller, 60))}</bdi> · `
  const title = `${price} USDC · ${plainText(seller ?? host, 60)}`
  const what = plainText(description, 300)
  const notes = [
    isMock && 'Mock mode: no USDC is involved.',
    isTest && !isMock && 'Test network: this USDC has no real value.',
  ].filter((note) => note !== false)
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>${escapeHtml(title)}</title>
<style>${pageStyle}</style>
</head>
<body>
<main>
<header>
<p class="soft">${by}${escapeHtml(host)}</p>
<h1>This costs ${price} USDC</h1>
${what === '' ? '' : `<p><bdi>${escapeHtml(what)}</bdi></p>`}
${notes.map((note) => `<p class="test">${note}</p>`).join('\n')}
<dl>
${rowsOf(facts)
  .map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`)
  .join('\n')}
</dl>
</header>
${(isMock ? [mockSection] : [paySection, commandSection, agentSection, programSection, deviceSection])
  .map((write) => write(facts))
  .join('\n')}
<footer>
<p>This page can’t see your wallet. You pay only if you sign a payment of exactly this amount.${
    isMock ? '' : ` Payments are checked and settled by ${escapeHtml(new URL(gatewayUrl).host)}.`
  }</p>
</footer>
</main>
</body>
</html>
`
}

function rowsOf({
  price,
  method,
  url,
  network,
  mimeType,
  isMock,
}: PageFacts): [name: string, value: string][] {
  const rows: [string, string][] = [
    ['Price', `${price} USDC per request, including all fees`],
    ['Request', `<code>${escapeHtml(plainText(`${method} ${url}`, 600))}</code>`],
  ]
  if (mimeType !== '') rows.push(['Answer', `<code>${escapeHtml(plainText(mimeType, 60))}</code>`])
  if (!isMock)
    rows.push([
      'Network',
      `${escapeHtml(plainText(network, 40))}. Your wallet needs USDC on this network, but no gas.`,
    ])
  return rows
}

function section(title: string, ...parts: readonly string[]): string {
  return `<section>\n<h2>${title}</h2>\n${parts.filter((part) => part !== '').join('\n')}\n</section>`
}

/** Returns the section that links to the provider's own payment page. */
function paySection({ payUrl }: PageFacts): string {
  if (payUrl === undefined) return ''
  const host = escapeHtml(new URL(payUrl).host)
  return section(
    'With your wallet, in the browser',
    `<p><a class="pay" href="${escapeHtml(payUrl)}">Pay at ${host}</a></p>`,
    '<p>Or scan this code with the phone that has your wallet.</p>',
    writeCode(payUrl),
  )
}

/**
 * Returns the section with a QR code of this address, so that a person can open it on the device that has their agent or wallet. Empty if the
 * provider has a payment page, or if the URL is too long for a QR code.
 */
function deviceSection({ payUrl, url }: PageFacts): string {
  const code = writeCode(url)
  if (payUrl !== undefined || code === '') return ''
  return section(
    'On another device',
    '<p>Is your wallet or agent on a phone? Scan this code to open the address there.</p>',
    code,
  )
}

/**
 * Draws a QR code as an image in the document. It is dark on white in both color schemes, because cameras need that.
 *
 * The mask is fixed: finding the best of the eight masks takes ten times as long, and anyone can request pages.
 */
function writeCode(text: string): string {
  if (text.length > maxCodeLength) return ''
  const { data, size } = encode(text, { border: 4, ecc: 'M', maskPattern: 0 })
  const label = escapeHtml(`QR code of ${text}`)
  const path = data.flatMap((row, y) => linesOf(row).map(([x, width]) => `M${x} ${y}h${width}v1h-${width}z`))
  return `<svg role="img" aria-label="${label}" viewBox="0 0 ${size} ${size}" shape-rendering="crispEdges"><path d="${path.join('')}"/></svg>`
}

/** Joins adjacent dark squares of a row. */
function linesOf(row: readonly boolean[]): [x: number, width: number][] {
  const lines: [x: number, width: number][] = []
  for (const [x, isDark] of row.entries()) {
    const last = lines.at(-1)
    if (!isDark) continue
    if (last && last[0] + last[1] === x) last[1]++
    else lines.push([x, 1])
  }
  return lines
}

function commandSection(facts: PageFacts): string {
  // The command can't use tabs, and a request with a body needs more than one line.
  if (facts.isOnTab || facts.method !== 'GET' || !isWord(facts)) return ''
  return section(
    'In a terminal',
    `<pre>${escapeHtml(writeBuyCommand(purchaseOf(facts), facts.url))}</pre>`,
    `<p class="soft">Runs ${whereItRuns}.</p>`,
  )
}

function agentSection(facts: PageFacts): string {
  if (!isWord(facts)) return ''
  return section(
    'With an AI agent',
    '<p>Add this MCP server to your agent’s host. Then ask the agent to fetch the address of this page.</p>',
    '<details>\n<summary>Show the configuration</summary>',
    `<pre>${escapeHtml(writeMcpConfig(purchaseOf(facts), facts.url).trimEnd())}</pre>`,
    `<p class="soft">Runs ${whereItRuns}. The last two lines of <code>env</code> limit what the agent can spend.</p>`,
    '</details>',
  )
}

function purchaseOf({ gatewayUrl, network, usdcAddress, amount }: PageFacts): ShownPurchase {
  return { gatewayUrl, network, usdcAddress, maxAmount: amount }
}

/** Returns whether all values that a command contains without quotes are single words. */
function isWord({ network, gatewayUrl }: PageFacts): boolean {
  return /^[\w-]+$/.test(network) && /^[\w.:/[\]-]+$/.test(gatewayUrl)
}

function programSection({ isOnTab, listingUrl }: PageFacts): string {
  const clients = isOnTab
    ? 'Prices this small are added up on a tab, which requires Tollkeeper’s SDK.'
    : 'Any x402 client can pay for this URL, for example <code>@x402/fetch</code>.'
  return section(
    'From a program',
    `<p>${clients} The offer is in this response’s header <code>PAYMENT-REQUIRED</code>, and in the body if the request accepts <code>application/json</code>.</p>`,
    listingUrl === undefined
      ? ''
      : `<p><a href="${escapeHtml(listingUrl)}">More ways to buy, and sales statistics</a></p>`,
  )
}

function mockSection(): string {
  return section(
    'How to try it',
    '<p>Send this header with the request:</p>',
    '<pre>Authorization: x402 mock:mock</pre>',
  )
}
