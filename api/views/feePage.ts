import { hash } from 'node:crypto'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { html, raw } from 'hono/html'

/** Amounts of a fee document as its JSON shows them, in decimals. */
type Amounts = { payments: number; gross_usdc: string; fee_usdc: string; net_usdc: string; rate: string }
type FeePage = {
  month: string
  state: string
  from: string
  to: string
  issuer: { name: string; address: string | null; taxId: string | null; url: string }
  recipient: { providerId: string; name: string; contact: string | null }
  documents: (Amounts & {
    number: string
    network: string
    testnet: boolean
    asset: string | null
    endpoints: (Amounts & { endpointId: string | null; endpoint: string })[]
  })[]
}

const style = `
@page { size: A4; margin: 18mm }
body { font: 11pt/1.4 system-ui, sans-serif; color: #111; background: #fff; max-width: 174mm; margin: 0 auto }
section { break-after: page } section:last-of-type { break-after: auto }
h1 { font-size: 16pt; margin: 8mm 0 2mm } .state { font-weight: bold }
.parties { display: flex; gap: 12mm } .parties > div { flex: 1 } .parties p { margin: 0 }
.label, footer { color: #555; font-size: 9pt }
table { width: 100%; border-collapse: collapse; margin-top: 6mm; font-size: 9pt }
th, td { text-align: left; padding: 1mm 2mm 1mm 0; border-bottom: .2mm solid #ccc; overflow-wrap: anywhere }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
tr.total td { font-weight: bold; border-bottom: .5mm solid #111 }
`
const policy = `default-src 'none'; style-src 'sha256-${hash('sha256', style, 'base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`

/** The page has one style and no scripts. `sandbox` prevents scripts and forms even if a name contains markup. */
export const feePageHeaders = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `${policy}; sandbox`,
  'referrer-policy': 'no-referrer',
}

/** Maximum number of endpoints listed by name, so that a document prints on one page; the remaining endpoints share one row. */
const listed = 24

/** Renders fee documents as a page to print, with each network on a separate sheet. */
export function renderFeePage(page: FeePage) {
  const sections =
    page.documents.length === 0
      ? html`<section>${parties(page)}<h1>No fees in ${page.month}</h1></section>`
      : page.documents.map((document) => renderDocument(page, document))
  // A saved file has lost its headers, so the policy is in a meta element as well. A meta element can't forbid framing.
  const saved = policy.replace("; frame-ancestors 'none'", '')
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${saved}">
<meta name="viewport" content="width=device-width">
<title>Fees ${page.month}</title>
<style>${raw(style)}</style>
</head>
<body>
${sections}
</body>
</html>
`
}

function parties({ issuer, recipient }: FeePage) {
  const paragraph = (text: string | null) => (text === null || text === '' ? '' : html`<p>${text}</p>`)
  return html`<div class="parties">
<div><p class="label">From</p>${paragraph(issuer.name)}${paragraph(issuer.address)}${paragraph(issuer.taxId && `Tax ID ${issuer.taxId}`)}${paragraph(issuer.url)}</div>
<div><p class="label">To</p>${paragraph(recipient.name)}${paragraph(recipient.contact)}${paragraph(recipient.providerId)}</div>
</div>`
}

function renderDocument(page: FeePage, document: FeePage['documents'][number]) {
  const byFee = document.endpoints.toSorted((a, b) =>
    parseUsdc(a.fee_usdc) < parseUsdc(b.fee_usdc) ? 1 : -1,
  )
  const shown = byFee.slice(0, byFee.length > listed ? listed - 1 : listed)
  const others = byFee.length - shown.length
  const rows = shown.map((row) => html`<tr>${cells(row.endpoint, row)}</tr>`)
  const rest =
    others === 0 ? '' : html`<tr><td colspan="6">and ${others} more endpoints: see format=json</td></tr>`
  const isFinal = page.state === 'final'
  return html`<section>
${parties(page)}
<h1>Fees for ${page.month}</h1>
<p>Document ${document.number}, ${document.network}${document.testnet ? ' (test money, no real value)' : ''}. ${isFinal ? '' : html`<span class="state">Preliminary: the amounts may still change.</span>`}</p>
<p>Platform fees on payments that arrived from ${page.from.slice(0, 10)} to before ${page.to.slice(0, 10)} (UTC). They were deducted from the payments, so nothing is due.</p>
<table>
<thead><tr><th>Endpoint</th><th class="number">Payments</th><th class="number">Gross USDC</th><th class="number">Rate</th><th class="number">Fee USDC</th><th class="number">Net USDC</th></tr></thead>
<tbody>${rows}${rest}<tr class="total">${cells('Total', document)}</tr></tbody>
</table>
<footer>USDC${document.asset === null ? '' : ` at ${document.asset}`} on ${document.network}. Amounts in USDC with six decimals; the rate is the fee divided by the gross amount.</footer>
</section>`
}

function cells(title: string, { payments, gross_usdc, rate, fee_usdc, net_usdc }: Amounts) {
  const numbers = [String(payments), gross_usdc, percent(rate), fee_usdc, net_usdc]
  return html`<td>${title}</td>${numbers.map((one) => html`<td class="number">${one}</td>`)}`
}

/** Converts a fraction with six decimals to a percentage with four. */
function percent(fraction: string): string {
  const digits = fraction.replace('.', '')
  return `${Number(digits.slice(0, -4))}.${digits.slice(-4, -2)}%`
}
