import { formatShortUsdc } from '../protocol/amount.ts'
import { type Challenge, noDescription } from '../protocol/challenge.ts'
import { networks } from '../protocol/networks.ts'
import { prefersHtml } from './accept.ts'
import type { GateDecision } from './decision.ts'
import type { PageFacts } from './pageFacts.ts'
import { writePage } from './pageHtml.ts'
import { linkOf } from './pageText.ts'
import type { Warnings } from './warnings.ts'

/** Options for the page that a person gets instead of a 402's JSON. */
export type PageOptions = {
  /**
   * The page for people who open a paid URL in a browser. `false`: they get JSON. A function: returns your own document, in which browsers run no
   * scripts. Default: a page that shows the price, what it buys and how to pay.
   */
  page?: false | ((facts: PageFacts) => string)
  /**
   * URL of your own page that pays with the visitor's wallet. The default page links to it. Its query parameter `url` contains the URL to pay for:
   * check that this URL is on your own origin.
   */
  payPage?: string
}

/** SHA-256 of the style in base64. `page.test.ts` compares it with the style. */
const pageStyleHash = 'HrMtNZoyuc/bJQw4vGpYhn2LmE9mBjrTYOvGCekjFNk='

const nothingElse = "base-uri 'none';form-action 'none';frame-ancestors 'none'"
/** Content security policy of the default page: no script, no request, and only its own style. */
const ownPolicy = `default-src 'none';style-src 'sha256-${pageStyleHash}';img-src data:;${nothingElse}`
/**
 * Content security policy of a provider's page. It allows styles, fonts and pictures from anywhere. If the provider forgets to escape a text, a
 * script in it doesn't run.
 */
const customPolicy = `default-src 'none';style-src 'self' 'unsafe-inline' https:;font-src 'self' https:;img-src 'self' https: data:;${nothingElse}`

/**
 * Number of bytes by which the head of a response with a page is longer than the head of a response with JSON. `PAYMENT-REQUIRED` is shortened by
 * this number, because some proxies limit the whole head.
 */
export const pageHeadBytes = 200

export type Pages = ReturnType<typeof createPages>

type Asked = { method: string; accept?: string | null | undefined }

/**
 * Creates the pages of 402s.
 *
 * @throws {TypeError} for a `payPage` that isn't an http or https URL.
 */
export function createPages(
  { page, payPage }: PageOptions,
  { isMock, warnings }: { isMock: boolean; warnings: Pick<Warnings, 'tell'> },
) {
  if (payPage !== undefined && linkOf(payPage) === undefined)
    throw new TypeError(`payPage must be a URL that starts with https:// or http://, got ${payPage}`)

  function write(facts: PageFacts): { html: string; policy: string } {
    if (page) {
      try {
        const html: unknown = page(facts)
        if (typeof html === 'string') return { html, policy: customPolicy }
        warnings.tell('page_failed', `it returned ${typeof html}`)
        // The result of an async function isn't awaited, but its rejection must be handled.
        if (html instanceof Promise) html.catch(() => {})
      } catch (error) {
        warnings.tell('page_failed', String(error))
      }
    }
    return { html: writePage(facts), policy: ownPolicy }
  }

  return {
    /** Returns whether a request without a payment gets the page. */
    isWanted({ accept }: Asked): boolean {
      return page !== false && prefersHtml(accept)
    },
    /**
     * Returns the response with the page.
     *
     * @param headers the 402's headers. They contain everything that a client of x402 v2 needs to pay.
     * @returns undefined if a browser can't open the resource, for example an MCP tool.
     */
    answer(asked: Asked, challenge: Challenge, headers: Record<string, string>): GateDecision | undefined {
      const facts = factsOf(asked, challenge, { isMock, payPage })
      if (facts === undefined) return undefined
      const { html, policy } = write(facts)
      const own = {
        'Content-Type': 'text/html; charset=utf-8',
        'Cache-Control': 'no-store',
        Vary: 'Accept',
        'Content-Security-Policy': policy,
      }
      return { kind: 'answer', answer: { status: 402, headers: { ...own, ...headers }, body: html } }
    },
  }
}

function factsOf(
  { method }: Asked,
  { accepts: [offer, fee], issuer, seller, tab }: Challenge,
  { isMock, payPage }: { isMock: boolean; payPage: string | undefined },
): PageFacts | undefined {
  const [url, gatewayUrl] = [linkOf(offer.resource), linkOf(issuer)]
  if (url === undefined || gatewayUrl === undefined) return undefined
  const amount = BigInt(offer.maxAmountRequired) + BigInt(fee.maxAmountRequired)
  const { network } = offer
  const known = Object.values(networks).find(({ name }) => name === network)
  return {
    price: formatShortUsdc(amount),
    amount,
    seller: seller?.name,
    description: isMock || offer.description === noDescription ? '' : offer.description,
    mimeType: offer.mimeType,
    method,
    url,
    host: new URL(url).host,
    network,
    usdcAddress: known?.usdc === null ? offer.asset : undefined,
    isTest: known?.testnet ?? false,
    isMock,
    isOnTab: tab?.only === true,
    payUrl: payPage === undefined ? undefined : payUrlOf(payPage, url),
    listingUrl: listingOf(seller?.listing, gatewayUrl),
    gatewayUrl: gatewayUrl.replace(/\/$/, ''),
  }
}

function payUrlOf(payPage: string, url: string): string {
  const target = new URL(payPage)
  target.searchParams.set('url', url)
  return target.href
}

/** Returns the link to the listing's page on the gateway. */
function listingOf(listing: string | undefined, gatewayUrl: string): string | undefined {
  const link = linkOf(listing)
  return link !== undefined && new URL(link).origin === new URL(gatewayUrl).origin ? link : undefined
}
